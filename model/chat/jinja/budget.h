// What one rendering may use up: steps of work and live memory. Overdrawing it never stops an
// operation in its middle; it is noted here, and the interpreter ends the rendering at its next
// look. One rendering, one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/base/limits.h"

namespace millrace::jinja {

class Budget {
 public:
  explicit Budget(std::uint64_t steps_max = limits::template_steps_max) : steps_max_(steps_max) {}

  // A step is about the work of evaluating one small expression.
  void work(std::uint64_t steps) noexcept {
    steps_ += steps;
    if (steps_ > steps_max_) overdrawn_ |= steps_bit;
  }
  void work_bytes(std::uint64_t bytes) noexcept { work(bytes / bytes_per_step); }
  void claim_bytes(std::size_t bytes) noexcept {
    live_bytes_ += bytes;
    if (live_bytes_ > limits::template_memory_bytes_max) overdrawn_ |= memory_bit;
  }
  void release_bytes(std::size_t bytes) noexcept { live_bytes_ -= bytes; }
  void string_too_long() noexcept { overdrawn_ |= string_bit; }

  bool exhausted() const noexcept { return overdrawn_ != 0; }
  std::uint64_t steps() const noexcept { return steps_; }
  // Which limit was met, in words.
  std::string problem() const;

 private:
  static constexpr std::uint64_t bytes_per_step = 64;
  static constexpr unsigned steps_bit = 1, memory_bit = 2, string_bit = 4;

  std::uint64_t steps_max_;
  std::uint64_t steps_ = 0;
  std::size_t live_bytes_ = 0;
  unsigned overdrawn_ = 0;
};

}  // namespace millrace::jinja
