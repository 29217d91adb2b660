#include "runtime/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace millrace {

bool stderr_is_terminal() noexcept { return isatty(STDERR_FILENO) == 1; }

ProgressLine::ProgressLine(bool enabled) : enabled_(enabled) {}

void ProgressLine::show(std::string_view what, double share, std::string_view detail) {
  constexpr std::uint64_t interval_ns = 100'000'000;
  if (!enabled_) return;
  const std::uint64_t now = system_clock().now_ns();
  if (shown_ && now - last_ns_ < interval_ns) return;
  last_ns_ = now;
  shown_ = true;
  constexpr int width = 24;
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  const std::string bar = std::string(static_cast<std::size_t>(filled), '#') +
                          std::string(static_cast<std::size_t>(width - filled), '.');
  const std::string line =
      fmt::format("\r\x1b[K{} [{}] {:3.0f} % {}", what, bar, share * 100, detail);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
}

void ProgressLine::clear() {
  if (!shown_) return;
  std::fputs("\r\x1b[K", stderr);
  std::fflush(stderr);
  shown_ = false;
}

}  // namespace millrace
