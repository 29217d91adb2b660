// Byte sizes: constants, parsing of what users type, printing.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace millrace {

inline constexpr std::uint64_t KiB = 1024;
inline constexpr std::uint64_t MiB = 1024 * KiB;
inline constexpr std::uint64_t GiB = 1024 * MiB;

// A size as typed: bytes, or a share of something known later, or all of it.
struct SizeSpec {
  enum class Kind : std::uint8_t { unset, bytes, percent, all };
  Kind kind = Kind::unset;
  std::uint64_t bytes = 0;  // Kind::bytes
  double percent = 0;       // Kind::percent, 0..100

  // Bytes when the whole is `whole_bytes`; `unset` gives `fallback_bytes`. Never more than
  // whole_bytes for percent and all.
  std::uint64_t resolve(std::uint64_t whole_bytes, std::uint64_t fallback_bytes) const noexcept;
};

// "123", "6G", "512MiB", "1.5g", "25%", "all" (1024-based). Fails with `usage` and the text in
// question.
Result<SizeSpec> parse_size(std::string_view text);

// "12.6 MiB", "3.21 GiB", "512 B": three significant digits, 1024-based.
std::string format_bytes(std::uint64_t bytes);

// Rounds to a multiple of `step` (any positive number).
constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t step) noexcept {
  return (value + step - 1) / step * step;
}
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t step) noexcept {
  return value / step * step;
}

}  // namespace millrace
