#include "model/tokenizer/spm.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "runtime/base/utf8.h"

namespace millrace {

namespace {

// Higher scores first: a number that falls as the score rises, never Merge::never (which would
// stand for -NaN). The two zeros are one score.
std::uint32_t order_of(float score) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(score == 0.0F ? 0.0F : score);
  const bool negative = (bits >> 31) != 0;
  return negative ? bits : ~bits & 0x7FFFFFFFU;
}

// Where the first word of `text` ends: before a '▁' that follows another character.
std::size_t word_end(std::string_view text) noexcept {
  std::size_t at = 0;
  while (text.substr(at, spm_space.size()) == spm_space) at += spm_space.size();
  return std::min(text.find(spm_space, at), text.size());
}

int hex_digit(char digit) noexcept {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

}  // namespace

int spm_byte(std::string_view text) noexcept {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return -1;
  const int high = hex_digit(text[3]);
  const int low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

SpmEncoder::SpmEncoder(const Vocabulary& vocabulary, TokenId unknown, bool add_space_prefix)
    : vocabulary_(vocabulary), add_space_prefix_(add_space_prefix) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    TokenId id = vocabulary.find(fmt::format("<0x{:02X}>", byte));
    const char character = static_cast<char>(byte);
    if (id == no_token) id = find_piece({&character, 1});
    byte_tokens_[byte] = id == no_token ? unknown : id;
  }
  words_are_separate_ = true;
  for (std::size_t i = 0; i < vocabulary.size() && words_are_separate_; ++i) {
    const std::string_view text = vocabulary.text(static_cast<TokenId>(i));
    words_are_separate_ = find_piece(text) == no_token || word_end(text) == text.size();
  }
}

TokenId SpmEncoder::find_piece(std::string_view text) const noexcept {
  const TokenId id = vocabulary_.find(text);
  if (id == no_token) return no_token;
  const TokenKind kind = vocabulary_.kind(id);
  return kind == TokenKind::normal || kind == TokenKind::user_defined ? id : no_token;
}

void SpmEncoder::encode_word(std::string_view word, Merger& merger,
                             std::vector<TokenId>& out) const {
  merger.clear();
  for (std::size_t at = 0; at < word.size();) {
    // A byte that belongs to no character is a symbol of its own.
    const std::size_t length = std::max<std::size_t>(1, utf8_valid_length(word.substr(at)));
    merger.add(at, length, find_piece(word.substr(at, length)));
    at += length;
  }
  merger.run([&](const Merger::Symbol& left, const Merger::Symbol& right) {
    const TokenId id = find_piece(word.substr(left.begin, left.bytes + right.bytes));
    return id == no_token ? Merge{} : Merge{order_of(vocabulary_.score(id)), id};
  });
  merger.for_each([&](const Merger::Symbol& symbol) {
    if (symbol.id != no_token) {
      out.push_back(symbol.id);
      return;
    }
    for (const char byte : word.substr(symbol.begin, symbol.bytes)) {
      const TokenId id = byte_tokens_[static_cast<std::uint8_t>(byte)];
      if (id != no_token) out.push_back(id);
    }
  });
}

Status SpmEncoder::encode(std::span<const Fragment> fragments, std::vector<TokenId>& out) const {
  Merger merger;
  std::string text;
  bool after_special = true;  // as the start is
  for (const Fragment& fragment : fragments) {
    if (fragment.token != no_token) {
      out.push_back(fragment.token);
      after_special = true;
      continue;
    }
    text.clear();
    if (add_space_prefix_ && after_special) text += spm_space;
    for (const char byte : fragment.raw) {
      if (byte == ' ') text += spm_space;
      else text += byte;
    }
    for (std::string_view rest = text; !rest.empty();) {
      const std::size_t end = words_are_separate_ ? word_end(rest) : rest.size();
      encode_word(rest.substr(0, end), merger, out);
      rest.remove_prefix(end);
    }
    after_special = false;
  }
  return {};
}

}  // namespace millrace
