#include "model/sampling/stop_strings.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {

Result<StopStrings> StopStrings::create(std::vector<std::string> strings) {
  std::erase_if(strings, [](const std::string& string) { return string.empty(); });
  if (strings.size() > strings_max)
    return Error{ErrorCode::usage, fmt::format("{} stop strings (--stop), at most {} are supported",
                                               strings.size(), strings_max)};
  for (const std::string& string : strings)
    if (string.size() > string_bytes_max)
      return Error{ErrorCode::usage,
                   fmt::format("a stop string (--stop) of {} bytes, at most {} are supported",
                               string.size(), string_bytes_max)};
  StopStrings made;
  made.strings_ = std::move(strings);
  return made;
}

std::string_view StopStrings::push(std::string_view piece) {
  ready_.clear();
  if (stopped_) return ready_;
  pending_ += piece;

  std::size_t begin = std::string::npos;
  std::size_t end = std::string::npos;
  for (const std::string& string : strings_) {
    const std::size_t at = pending_.find(string);
    if (at == std::string::npos) continue;
    const std::size_t after = at + string.size();
    if (end != std::string::npos && (after > end || (after == end && at >= begin))) continue;
    begin = at;
    end = after;
    matched_ = string;
  }
  stopped_ = end != std::string::npos;

  ready_.assign(pending_, 0, stopped_ ? begin : pending_.size() - held_length());
  pending_.erase(0, stopped_ ? pending_.size() : ready_.size());
  return ready_;
}

// How much of the end of pending_ could be the start of a stop string.
std::size_t StopStrings::held_length() const noexcept {
  const std::string_view text = pending_;
  std::size_t held = 0;
  for (const std::string& string : strings_) {
    const std::size_t longest = std::min(string.size() - 1, text.size());
    for (std::size_t length = longest; length > held; --length)
      if (text.substr(text.size() - length) == std::string_view(string).substr(0, length))
        held = length;
  }
  return held;
}

std::string_view StopStrings::flush() {
  ready_.swap(pending_);
  pending_.clear();
  return ready_;
}

}  // namespace millrace
