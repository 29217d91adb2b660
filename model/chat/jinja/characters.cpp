#include "model/chat/jinja/characters.h"

#include <algorithm>
#include <array>

namespace millrace::jinja {

Character first_character(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1FU) << 6U | (byte(1) & 0x3FU), 2};
  if (lead < 0xF0) return {(lead & 0x0FU) << 12U | (byte(1) & 0x3FU) << 6U | (byte(2) & 0x3FU), 3};
  return {(lead & 0x07U) << 18U | (byte(1) & 0x3FU) << 12U | (byte(2) & 0x3FU) << 6U |
              (byte(3) & 0x3FU),
          4};
}

void append_utf8(std::string& out, char32_t code) {
  const auto push = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    push(code);
  } else if (code < 0x800) {
    push(0xC0U | code >> 6U);
    push(0x80U | (code & 0x3FU));
  } else if (code < 0x10000) {
    push(0xE0U | code >> 12U);
    push(0x80U | (code >> 6U & 0x3FU));
    push(0x80U | (code & 0x3FU));
  } else {
    push(0xF0U | code >> 18U);
    push(0x80U | (code >> 12U & 0x3FU));
    push(0x80U | (code >> 6U & 0x3FU));
    push(0x80U | (code & 0x3FU));
  }
}

bool is_space(char32_t code) noexcept {
  if (code < 0x80)
    return code == ' ' || (code >= 9 && code <= 13) || (code >= 0x1C && code <= 0x1F);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_line_end(char32_t code) noexcept {
  return (code >= 10 && code <= 13) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

namespace {

// Letters whose lower case is at a fixed distance.
struct CaseRange {
  char32_t first_upper, last_upper;
  char32_t distance;
};
constexpr std::array case_ranges = {
    CaseRange{'A', 'Z', 32},       CaseRange{0xC0, 0xD6, 32},   CaseRange{0xD8, 0xDE, 32},
    CaseRange{0x388, 0x38A, 37},   CaseRange{0x391, 0x3A1, 32}, CaseRange{0x3A3, 0x3AB, 32},
    CaseRange{0x400, 0x40F, 80},   CaseRange{0x410, 0x42F, 32}, CaseRange{0x531, 0x556, 48},
    CaseRange{0xFF21, 0xFF3A, 32},
};
// Letters in pairs, upper case first: even code points, or odd ones.
struct PairRange {
  char32_t first, last;
  char32_t upper_parity;
};
constexpr std::array pair_ranges = {
    PairRange{0x100, 0x12F, 0},   PairRange{0x132, 0x137, 0}, PairRange{0x139, 0x148, 1},
    PairRange{0x14A, 0x177, 0},   PairRange{0x179, 0x17E, 1}, PairRange{0x460, 0x481, 0},
    PairRange{0x48A, 0x4BF, 0},   PairRange{0x4D0, 0x52F, 0}, PairRange{0x1E00, 0x1E95, 0},
    PairRange{0x1EA0, 0x1EFF, 0},
};

char32_t lower_of(char32_t code) noexcept {
  for (const CaseRange& range : case_ranges)
    if (code >= range.first_upper && code <= range.last_upper) return code + range.distance;
  for (const PairRange& range : pair_ranges)
    if (code >= range.first && code <= range.last && code % 2 == range.upper_parity)
      return code + 1;
  switch (code) {
    case 0x178:
      return 0xFF;
    case 0x386:
      return 0x3AC;
    case 0x38C:
      return 0x3CC;
    case 0x38E:
      return 0x3CD;
    case 0x38F:
      return 0x3CE;
    case 0x1E9E:
      return 0xDF;
    default:
      return code;
  }
}

char32_t upper_of(char32_t code) noexcept {
  for (const CaseRange& range : case_ranges)
    if (code >= range.first_upper + range.distance && code <= range.last_upper + range.distance)
      return code - range.distance;
  for (const PairRange& range : pair_ranges)
    if (code >= range.first && code <= range.last && code % 2 != range.upper_parity)
      return code - 1;
  switch (code) {
    case 0xB5:
      return 0x39C;
    case 0xFF:
      return 0x178;
    case 0x131:
      return 'I';
    case 0x17F:
      return 'S';
    case 0x3AC:
      return 0x386;
    case 0x3C2:
      return 0x3A3;
    case 0x3CC:
      return 0x38C;
    case 0x3CD:
      return 0x38E;
    case 0x3CE:
      return 0x38F;
    default:
      return code;
  }
}

}  // namespace

bool is_upper(char32_t code) noexcept { return code != lower_of(code) || code == 0x130; }
bool is_lower(char32_t code) noexcept {
  return code != upper_of(code) || code == 0xDF || code == 0xAA || code == 0xBA || code == 0x138 ||
         code == 0x149;
}

bool is_letter(char32_t code) noexcept {
  if (code < 0x80) return (code | 32U) >= 'a' && (code | 32U) <= 'z';
  if (code < 0xC0) return code == 0xAA || code == 0xB5 || code == 0xBA;
  if (code == 0xD7 || code == 0xF7) return false;
  // Combining marks, punctuation, symbols, private use; the rest is mostly letters.
  return !(code >= 0x300 && code <= 0x36F) && !(code >= 0x2000 && code <= 0x2BFF) &&
         !(code >= 0x3000 && code <= 0x3004) && !(code >= 0x3008 && code <= 0x3030) &&
         !(code >= 0xE000 && code <= 0xF8FF) && !(code >= 0xFE00 && code <= 0xFE6F) &&
         !(code >= 0xFF00 && code <= 0xFF20) && !(code >= 0xFFE0 && code <= 0xFFFF) &&
         !(code >= 0x1F000 && code <= 0x1FAFF) && code < 0xE0000;
}

bool is_digit(char32_t code) noexcept { return code >= '0' && code <= '9'; }

bool is_printable(char32_t code) noexcept {
  if (code < 0x7F) return code >= 0x20;
  if (code <= 0xA0 || code == 0xAD) return false;
  if (is_space(code)) return false;
  return !(code >= 0x600 && code <= 0x605) && code != 0x61C && code != 0x6DD && code != 0x70F &&
         code != 0x180E && !(code >= 0x200B && code <= 0x200F) &&
         !(code >= 0x202A && code <= 0x202E) && !(code >= 0x2060 && code <= 0x206F) &&
         !(code >= 0xE000 && code <= 0xF8FF) && code != 0xFEFF &&
         !(code >= 0xFFF0 && code <= 0xFFFB) && code != 0xFFFE && code != 0xFFFF && code < 0xE0000;
}

std::string to_upper(char32_t code) {
  if (code == 0xDF) return "SS";
  std::string out;
  append_utf8(out, upper_of(code));
  return out;
}

std::string to_lower(char32_t code) {
  if (code == 0x130) return "i\xCC\x87";
  std::string out;
  append_utf8(out, lower_of(code));
  return out;
}

}  // namespace millrace::jinja
