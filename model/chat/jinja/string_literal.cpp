#include "model/chat/jinja/string_literal.h"

#include <fmt/format.h>

#include <charconv>

#include "model/chat/jinja/characters.h"

namespace millrace::jinja {

namespace {

// The number that exactly `digits` hexadecimal digits at the start of `text` make.
bool hexadecimal(std::string_view text, std::size_t digits, char32_t& out) {
  if (text.size() < digits) return false;
  std::uint32_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + digits, number, 16);
  out = number;
  return parsed.ec == std::errc() && parsed.ptr == text.data() + digits;
}

bool is_surrogate(char32_t code) noexcept { return code >= 0xD800 && code < 0xE000; }

// \xNN, \uNNNN, \UNNNNNNNN behind the backslash; two \u that make a surrogate pair are one
// character. Returns how much of `text` was taken.
Result<std::size_t> numbered(std::string_view text, std::string& out) {
  const std::size_t digits = text[0] == 'x' ? 2 : text[0] == 'u' ? 4 : 8;
  char32_t code = 0;
  if (!hexadecimal(text.substr(1), digits, code) || code > 0x10FFFF)
    return Error{ErrorCode::format, fmt::format("a \\{} escape is malformed", text[0])};
  std::size_t taken = 1 + digits;
  char32_t low = 0;
  if (code >= 0xD800 && code < 0xDC00 && text.substr(taken, 2) == "\\u" &&
      hexadecimal(text.substr(taken + 2), 4, low) && low >= 0xDC00 && low < 0xE000) {
    code = 0x10000 + ((code - 0xD800) << 10U) + (low - 0xDC00);
    taken += 6;
  }
  append_utf8(out, is_surrogate(code) ? 0xFFFD : code);
  return taken;
}

std::size_t octal(std::string_view text, std::string& out) {
  char32_t code = 0;
  std::size_t taken = 0;
  while (taken < 3 && taken < text.size() && text[taken] >= '0' && text[taken] <= '7')
    code = code * 8 + static_cast<char32_t>(text[taken++] - '0');
  append_utf8(out, code);
  return taken;
}

char simple(char letter) noexcept {
  constexpr std::string_view letters = "\\'\"abfnrtv";
  constexpr std::string_view values = "\\'\"\a\b\f\n\r\t\v";
  const std::size_t at = letters.find(letter);
  return at == std::string_view::npos ? '\0' : values[at];
}

}  // namespace

Result<std::string> decode_string_literal(std::string_view literal) {
  std::string out;
  while (!literal.empty()) {
    const std::size_t run = std::min(literal.find('\\'), literal.size());
    out += literal.substr(0, run);
    literal.remove_prefix(run);
    if (literal.size() < 2) break;  // a backslash is never the last character of a literal
    const char letter = literal[1];
    literal.remove_prefix(1);
    std::size_t taken = 1;
    if (letter == 'x' || letter == 'u' || letter == 'U') {
      MILLRACE_ASSIGN(taken, numbered(literal, out));
    } else if (letter == 'N') {
      return Error{ErrorCode::format, "\\N escapes (characters by name) are not supported"};
    } else if (letter >= '0' && letter <= '7') {
      taken = octal(literal, out);
    } else if (const char value = simple(letter); value != '\0') {
      out.push_back(value);
    } else if (letter != '\n') {  // an escaped newline is nothing
      out.push_back('\\');
      out.push_back(letter);
    }
    literal.remove_prefix(taken);
  }
  return out;
}

}  // namespace millrace::jinja
