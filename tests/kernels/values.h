// Inputs and comparisons for kernel tests: seeded values, buffers that end at an unmapped page,
// equality of bits.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "runtime/base/check.h"

namespace millrace::testing {

inline constexpr float infinity = std::numeric_limits<float>::infinity();
inline constexpr float untouched = -12345.0f;  // what is in an output before a kernel writes there

// SplitMix64: small, seeded, the same everywhere.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  double uniform(double low, double high) {
    return low + (high - low) * (static_cast<double>(bits() >> 11) * 0x1p-53);
  }
  std::vector<float> floats(std::size_t count, double low = -2, double high = 2) {
    std::vector<float> out(count);
    for (float& x : out) x = static_cast<float>(uniform(low, high));
    return out;
  }

 private:
  std::uint64_t state_;
};

// `count` elements whose last byte is the last one before an unmapped page: a read or write past
// the end faults.
template <class T>
class GuardedArray {
 public:
  explicit GuardedArray(std::size_t count) : count_(count) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t used = (count * sizeof(T) + page - 1) / page * page;
    bytes_ = used + page;
    base_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MILLRACE_CHECK(base_ != MAP_FAILED);
    MILLRACE_CHECK(mprotect(static_cast<char*>(base_) + used, page, PROT_NONE) == 0);
    data_ = reinterpret_cast<T*>(static_cast<char*>(base_) + used - count * sizeof(T));
  }
  explicit GuardedArray(const std::vector<T>& values) : GuardedArray(values.size()) {
    if (!values.empty()) std::memcpy(data_, values.data(), values.size() * sizeof(T));
  }
  ~GuardedArray() { munmap(base_, bytes_); }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;

  T* data() { return data_; }
  std::span<const T> span() const { return {data_, count_}; }

 private:
  std::size_t count_;
  std::size_t bytes_ = 0;
  void* base_ = nullptr;
  T* data_ = nullptr;
};

// Bit for bit, all NaNs counted as equal.
inline bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// The first index at which the two differ, or -1.
inline std::ptrdiff_t first_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) return static_cast<std::ptrdiff_t>(i);
  }
  return -1;
}

// The distance between neighbouring floats at `x` (of normal size at least).
inline double unit_of(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, exponent < -125 ? -149 : exponent - 24);
}

}  // namespace millrace::testing
