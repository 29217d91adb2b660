#include "model/tokenizer/byte_alphabet.h"

#include <algorithm>
#include <array>

#include "runtime/base/utf8.h"

namespace millrace {

namespace {

constexpr std::uint32_t first_stand_in = 0x100;
constexpr std::uint32_t stand_ins = 68;

constexpr bool stands_for_itself(std::uint32_t byte) noexcept {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::uint32_t, 256> code_point{};
  std::array<std::uint8_t, first_stand_in + stand_ins> byte{};  // inverse
  std::array<bool, first_stand_in + stand_ins> known{};
  std::array<std::array<char, 2>, 256> utf8{};
  std::array<std::uint8_t, 256> utf8_length{};
};

constexpr Alphabet make_alphabet() noexcept {
  Alphabet made;
  std::uint32_t next = first_stand_in;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const std::uint32_t point = stands_for_itself(byte) ? byte : next++;
    made.code_point[byte] = point;
    made.byte[point] = static_cast<std::uint8_t>(byte);
    made.known[point] = true;
    made.utf8_length[byte] = point < 0x80 ? 1 : 2;
    made.utf8[byte] = point < 0x80 ? std::array<char, 2>{static_cast<char>(point), 0}
                                   : std::array<char, 2>{static_cast<char>(0xC0 | (point >> 6)),
                                                         static_cast<char>(0x80 | (point & 0x3F))};
  }
  return made;
}

constexpr Alphabet alphabet = make_alphabet();
static_assert(alphabet.code_point[0x00] == 0x100 && alphabet.code_point[0x20] == 0x120);
static_assert(alphabet.code_point[0x7F] == 0x121 && alphabet.code_point[0xAD] == 0x143);

}  // namespace

std::string_view alphabet_character(std::uint8_t byte) noexcept {
  return {alphabet.utf8[byte].data(), alphabet.utf8_length[byte]};
}

void append_alphabet(std::string_view bytes, std::string& out) {
  for (const char byte : bytes) out += alphabet_character(static_cast<std::uint8_t>(byte));
}

void append_alphabet_bytes(std::string_view alphabet_text, std::string& out) {
  while (!alphabet_text.empty()) {
    const std::size_t length = std::max<std::size_t>(1, utf8_valid_length(alphabet_text));
    const auto first = static_cast<std::uint8_t>(alphabet_text[0]);
    std::uint32_t point = first;
    if (length == 2)
      point = (first & 0x1FU) << 6 | (static_cast<std::uint8_t>(alphabet_text[1]) & 0x3FU);
    const bool known = length <= 2 && (length == 2 || first < 0x80) &&
                       point < alphabet.known.size() && alphabet.known[point];
    if (known) out += static_cast<char>(alphabet.byte[point]);
    else out += alphabet_text.substr(0, length);
    alphabet_text.remove_prefix(length);
  }
}

}  // namespace millrace
