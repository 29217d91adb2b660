// What the guard watches: how much memory is left, and who has been waiting for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace millrace {

struct PressureSample {
  static constexpr std::uint64_t unknown = UINT64_MAX;
  std::uint64_t left_bytes = unknown;  // that may still be taken
  // Counting up since some start; only differences matter.
  std::uint64_t waited_us = unknown;  // with some task waiting for memory (PSI)
  std::uint64_t major_faults = 0;     // of this process: pages that had to be read (again)
};

// Asked by one thread at a time. Tests put one of their own in its place.
class PressureSource {
 public:
  virtual ~PressureSource() = default;
  virtual PressureSample sample() noexcept = 0;  // allocates nothing
  // Why waiting is unknown; empty: it is known.
  virtual const std::string& waiting_unknown() const noexcept = 0;
};

// The system's: MemAvailable and the control groups (guard/memory_left.h); PSI of the process's own
// version 2 group, else of the whole system; getrusage. Files under `root` (empty: the real ones).
std::unique_ptr<PressureSource> make_system_pressure(const std::string& root = "");

}  // namespace millrace
