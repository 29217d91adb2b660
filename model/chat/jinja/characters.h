// What Python's str methods know about characters: white space, case, digits. All ASCII, and of the
// rest what text in Latin, Greek and Cyrillic letters needs; letters of other scripts have no case
// here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace::jinja {

// The character at the start of `text`, which is valid UTF-8 and not empty.
struct Character {
  char32_t code = 0;
  std::size_t bytes = 0;
};
Character first_character(std::string_view text) noexcept;
void append_utf8(std::string& out, char32_t code);

bool is_space(char32_t code) noexcept;
bool is_line_end(char32_t code) noexcept;  // where splitlines() cuts
bool is_upper(char32_t code) noexcept;
bool is_lower(char32_t code) noexcept;
bool is_letter(char32_t code) noexcept;
bool is_digit(char32_t code) noexcept;  // 0 to 9
// As repr() decides whether to escape.
bool is_printable(char32_t code) noexcept;

// One character may become several bytes, even characters (ß: SS).
std::string to_upper(char32_t code);
std::string to_lower(char32_t code);

}  // namespace millrace::jinja
