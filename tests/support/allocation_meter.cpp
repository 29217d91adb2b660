#include "tests/support/allocation_meter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace millrace::testing {

namespace {

std::atomic<std::uint64_t> calls{0};
std::atomic<std::uint64_t> largest_bytes{0};

void count(std::size_t bytes) noexcept {
  calls.fetch_add(1, std::memory_order_relaxed);
  std::uint64_t seen = largest_bytes.load(std::memory_order_relaxed);
  while (bytes > seen &&
         !largest_bytes.compare_exchange_weak(seen, bytes, std::memory_order_relaxed)) {
  }
}

void* try_allocate(std::size_t bytes) noexcept {
  count(bytes);
  return std::malloc(bytes != 0 ? bytes : 1);
}

void* allocate(std::size_t bytes) {
  if (void* memory = try_allocate(bytes)) return memory;
  throw std::bad_alloc();
}

void* allocate_aligned(std::size_t bytes, std::align_val_t alignment) {
  count(bytes);
  const auto step = static_cast<std::size_t>(alignment);
  if (void* memory = std::aligned_alloc(step, (bytes + step - 1) / step * step)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void reset_allocations() noexcept {
  calls = 0;
  largest_bytes = 0;
}

AllocationCounts allocations() noexcept { return {calls.load(), largest_bytes.load()}; }

}  // namespace millrace::testing

void* operator new(std::size_t bytes) { return millrace::testing::allocate(bytes); }
void* operator new[](std::size_t bytes) { return millrace::testing::allocate(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return millrace::testing::allocate_aligned(bytes, alignment);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return millrace::testing::allocate_aligned(bytes, alignment);
}
// The sanitizers' own form of these would not match the delete below.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return millrace::testing::try_allocate(bytes);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return millrace::testing::try_allocate(bytes);
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
