// SPM (tokenizer.ggml.model "llama"): characters, joined by the score of the token that they make.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/fragment_encoder.h"
#include "model/tokenizer/merger.h"
#include "model/tokenizer/vocabulary.h"

namespace millrace {

class SpmEncoder final : public FragmentEncoder {
 public:
  // Keeps a reference: `vocabulary` must stay where it is. `unknown` (or no_token) stands for a
  // byte that the vocabulary cannot write. With `add_space_prefix` raw text at the start and behind
  // a special token is read with a space before it.
  SpmEncoder(const Vocabulary& vocabulary, TokenId unknown, bool add_space_prefix);

  Status encode(std::span<const Fragment> fragments, std::vector<TokenId>& out) const override;

 private:
  // The token that text may be joined to: raw text never gives control, byte or unknown tokens.
  TokenId find_piece(std::string_view text) const noexcept;
  // Text without boundaries that no token crosses; '▁' stands for spaces.
  void encode_word(std::string_view word, Merger& merger, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary_;
  std::array<TokenId, 256> byte_tokens_{};
  bool add_space_prefix_;
  // No token has a '▁' behind another character, so words can be encoded one by one: the same ids,
  // and no queue of a whole book's pairs.
  bool words_are_separate_;
};

// The byte that "<0xE2>" stands for; -1 if `text` has another form.
int spm_byte(std::string_view text) noexcept;

inline constexpr std::string_view spm_space = "▁";  // U+2581

}  // namespace millrace
