// A line on stderr that tells how far long work is, when stderr is a terminal; nothing otherwise.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/clock.h"

namespace millrace {

// One thread at a time. The line is wiped by the destructor and by clear().
class ProgressLine {
 public:
  explicit ProgressLine(bool enabled);  // see stderr_is_terminal()
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  // Shows "what 42 % detail" at most ten times a second.
  void show(std::string_view what, double share, std::string_view detail);
  void clear();

 private:
  bool enabled_;
  bool shown_ = false;
  std::uint64_t last_ns_ = 0;
};

bool stderr_is_terminal() noexcept;

}  // namespace millrace
