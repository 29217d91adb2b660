#include "runtime/base/counted.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {

std::string counted(std::uint64_t count, std::string_view one, std::string_view behind) {
  return fmt::format("{} {}{}{}{}", count, one, count == 1 ? "" : "s", behind.empty() ? "" : " ",
                     behind);
}

std::string age_text(std::int64_t seconds) {
  const auto age = static_cast<std::uint64_t>(std::max<std::int64_t>(0, seconds));
  constexpr std::uint64_t minute = 60, hour = 60 * minute, day = 24 * hour;
  if (age < minute) return "just now";
  if (age < hour) return counted(age / minute, "minute", "ago");
  if (age < day) return counted(age / hour, "hour", "ago");
  return counted(age / day, "day", "ago");
}

Error out_of_range(std::string_view flag, std::string_view value, std::string_view range) {
  return {ErrorCode::usage, fmt::format("{} {}: must be {}", flag, value, range)};
}

Status check_range(std::string_view flag, std::uint64_t value, std::uint64_t least,
                   std::uint64_t most) {
  if (value >= least && value <= most) return {};
  return out_of_range(flag, std::to_string(value), fmt::format("{} to {}", least, most));
}

}  // namespace millrace
