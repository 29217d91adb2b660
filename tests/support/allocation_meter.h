// Counts what operator new gives out: a program that links allocation_meter.cpp has its own
// operator new and delete. Any thread.
#pragma once

#include <cstdint>

namespace millrace::testing {

struct AllocationCounts {
  std::uint64_t calls = 0;
  std::uint64_t largest_bytes = 0;
};

// Starts counting anew.
void reset_allocations() noexcept;
// Since the last reset, over all threads.
AllocationCounts allocations() noexcept;

}  // namespace millrace::testing
