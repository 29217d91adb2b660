#include "runtime/base/utf8.h"

namespace millrace {

namespace {

struct Lead {
  std::size_t length;        // 0: no lead byte
  unsigned char second_low;  // bounds of the second byte
  unsigned char second_high;
};

Lead classify(unsigned char first) noexcept {
  if (first < 0x80) return {1, 0, 0};
  if (first < 0xC2) return {0, 0, 0};
  if (first < 0xE0) return {2, 0x80, 0xBF};
  if (first == 0xE0) return {3, 0xA0, 0xBF};
  if (first == 0xED) return {3, 0x80, 0x9F};
  if (first < 0xF0) return {3, 0x80, 0xBF};
  if (first == 0xF0) return {4, 0x90, 0xBF};
  if (first < 0xF4) return {4, 0x80, 0xBF};
  if (first == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// How many bytes at the start of text fit the pattern of its lead byte (0 if there is no lead
// byte).
std::size_t matching_bytes(std::string_view text, const Lead& lead) noexcept {
  if (lead.length == 0) return 0;
  std::size_t count = 1;
  while (count < lead.length && count < text.size()) {
    const auto byte = static_cast<unsigned char>(text[count]);
    const unsigned char low = count == 1 ? lead.second_low : 0x80;
    const unsigned char high = count == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return 0;
    ++count;
  }
  return count;
}

}  // namespace

std::size_t utf8_valid_length(std::string_view text) noexcept {
  if (text.empty()) return 0;
  const Lead lead = classify(static_cast<unsigned char>(text.front()));
  return matching_bytes(text, lead) == lead.length ? lead.length : 0;
}

bool utf8_is_incomplete(std::string_view text) noexcept {
  if (text.empty()) return true;
  const Lead lead = classify(static_cast<unsigned char>(text.front()));
  return lead.length > text.size() && matching_bytes(text, lead) == text.size();
}

std::string utf8_replace_invalid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t position = 0;
  while (position < text.size()) {
    const std::size_t length = utf8_valid_length(text.substr(position));
    if (length == 0) {
      out += "\xEF\xBF\xBD";
      ++position;
    } else {
      out += text.substr(position, length);
      position += length;
    }
  }
  return out;
}

}  // namespace millrace
