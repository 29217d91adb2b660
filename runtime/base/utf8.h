// UTF-8 checking by RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace millrace {

// Bytes of the valid character at the start of `text` (1..4); 0 if text is empty or does not start
// with a valid, complete one.
std::size_t utf8_valid_length(std::string_view text) noexcept;

// True if `text` is empty or could become one valid character by appending bytes (a proper prefix
// of a character).
bool utf8_is_incomplete(std::string_view text) noexcept;

// Each byte that belongs to no valid character becomes U+FFFD.
std::string utf8_replace_invalid(std::string_view text);

}  // namespace millrace
