#include "model/tokenizer/token_bytes.h"

#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/spm.h"

namespace millrace {

namespace {

void append_spm_text(std::string_view text, std::string& out) {
  for (std::size_t at = text.find(spm_space); at != std::string_view::npos;
       at = text.find(spm_space)) {
    out += text.substr(0, at);
    out += ' ';
    text.remove_prefix(at + spm_space.size());
  }
  out += text;
}

void append_bytes(std::string_view text, TokenKind kind, TokenTextStyle style, std::string& out) {
  switch (kind) {
    case TokenKind::control:
    case TokenKind::unknown:
    case TokenKind::unused:
      return;
    case TokenKind::user_defined:
      out += text;
      return;
    case TokenKind::byte:
      if (const int byte = spm_byte(text); byte >= 0) {
        out += static_cast<char>(byte);
        return;
      }
      break;
    case TokenKind::normal:
      break;
  }
  if (style == TokenTextStyle::byte_alphabet) append_alphabet_bytes(text, out);
  else append_spm_text(text, out);
}

}  // namespace

TokenBytes::TokenBytes(const Vocabulary& vocabulary, TokenTextStyle style) {
  starts_.reserve(vocabulary.size() + 1);
  starts_.push_back(0);
  for (std::size_t i = 0; i < vocabulary.size(); ++i) {
    const TokenId id = static_cast<TokenId>(i);
    append_bytes(vocabulary.text(id), vocabulary.kind(id), style, bytes_);
    // No token writes more bytes than its text has, so 32 bits are enough as they are for texts.
    starts_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }
}

}  // namespace millrace
