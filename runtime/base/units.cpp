#include "runtime/base/units.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace millrace {

std::uint64_t SizeSpec::resolve(std::uint64_t whole_bytes,
                                std::uint64_t fallback_bytes) const noexcept {
  switch (kind) {
    case Kind::unset:
      return fallback_bytes;
    case Kind::bytes:
      return bytes;
    case Kind::percent:
      return std::min(whole_bytes, static_cast<std::uint64_t>(static_cast<double>(whole_bytes) *
                                                              percent / 100.0));
    case Kind::all:
      return whole_bytes;
  }
  return fallback_bytes;
}

namespace {

Error bad_size(std::string_view text) {
  return Error{
      ErrorCode::usage,
      fmt::format("'{}' is not a size: give bytes, or a number with K, M or G (6G, 512MiB), "
                  "a share (25%) or 'all'",
                  text)};
}

// The power of 1024 that a suffix stands for; -1 if it is none.
int suffix_power(std::string_view suffix) {
  std::string lower;
  for (const char c : suffix)
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (lower.empty() || lower == "b") return 0;
  constexpr std::array<char, 4> letters = {'k', 'm', 'g', 't'};
  for (std::size_t i = 0; i < letters.size(); ++i) {
    const std::string letter(1, letters[i]);
    if (lower == letter || lower == letter + "b" || lower == letter + "ib")
      return static_cast<int>(i) + 1;
  }
  return -1;
}

}  // namespace

Result<SizeSpec> parse_size(std::string_view text) {
  if (text == "all") return SizeSpec{SizeSpec::Kind::all, 0, 0};
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number) || number < 0) return bad_size(text);
  const std::string_view suffix = text.substr(static_cast<std::size_t>(end - text.data()));
  if (suffix == "%") {
    if (number > 100) return bad_size(text);
    return SizeSpec{SizeSpec::Kind::percent, 0, number};
  }
  const int power = suffix_power(suffix);
  if (power < 0) return bad_size(text);
  const double bytes = number * std::pow(1024.0, power);
  if (bytes > 9e18) return bad_size(text);
  return SizeSpec{SizeSpec::Kind::bytes, static_cast<std::uint64_t>(bytes), 0};
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> names = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1023.5 && unit + 1 < names.size()) {
    value /= 1024;
    ++unit;
  }
  if (unit == 0) return fmt::format("{} B", bytes);
  const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f} {}", value, digits, names[unit]);
}

}  // namespace millrace
