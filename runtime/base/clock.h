// The time source. Nothing else reads a clock; parts that need time take a Clock& so that tests can
// hand in theirs.
#pragma once

#include <chrono>
#include <cstdint>

namespace millrace {

class Clock {
 public:
  virtual ~Clock() = default;
  // Monotonic nanoseconds from an arbitrary start. Any thread.
  virtual std::uint64_t now_ns() noexcept {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(
                                          std::chrono::steady_clock::now().time_since_epoch())
                                          .count());
  }
};

// The process's own monotonic clock.
inline Clock& system_clock() noexcept {
  static Clock clock;
  return clock;
}

}  // namespace millrace
