// The alphabet of byte-level BPE: a printable character for each of the 256 bytes. Pure functions,
// any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

// UTF-8 of the character that stands for `byte`: itself for 0x21-0x7E, 0xA1-0xAC and 0xAE-0xFF;
// the other 68 are U+0100, U+0101, … in the order of their bytes.
std::string_view alphabet_character(std::uint8_t byte) noexcept;

// Appends the alphabet text of `bytes` to `out`.
void append_alphabet(std::string_view bytes, std::string& out);

// Appends the bytes that alphabet text stands for to `out`; what is not of the alphabet stays as it
// is.
void append_alphabet_bytes(std::string_view alphabet_text, std::string& out);

}  // namespace millrace
