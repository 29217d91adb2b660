// Text to token ids and back: the door to this folder. Built once from a checkpoint's metadata;
// immutable, so any number of threads may use it at once. Movable; TextStreams point to it and must
// not outlive or outmove it.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/format/checkpoint.h"
#include "model/tokenizer/fragment_encoder.h"
#include "model/tokenizer/special_splitter.h"
#include "model/tokenizer/special_tokens.h"
#include "model/tokenizer/token_bytes.h"
#include "model/tokenizer/vocabulary.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/base/text_range.h"

namespace millrace {

struct EncodeOptions {
  // Texts of control tokens become those tokens: for rendered chat templates, never for text of
  // users.
  bool parse_special = false;
  // Parts of the text where parse_special does not reach: what users wrote, inside of a rendered
  // template. A control token is found only where it lies wholly outside of them. Ascending, not
  // overlapping; must live as long as the call.
  std::span<const TextRange> never_special = {};
  // BOS and EOS where the model asks for them.
  bool add_bos_eos = false;
};

class Tokenizer {
 public:
  // Fails with `format` (no tokenizer in the file, or a malformed one) or `unsupported` (a kind of
  // tokenizer that is not byte-level BPE or SPM). An unknown pre-tokenizer is a warning.
  static Result<Tokenizer> from_checkpoint(const Checkpoint& checkpoint);

  // Any bytes; what is not UTF-8 comes back as the same bytes. Fails with `usage` if the text is
  // longer than limits::text_bytes_max. Time is O(n log n) for any text.
  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options) const;

  // Whether encode() brings texts into normal form C, as tokenizer.json asks: then characters in
  // several pieces come back in one.
  bool normalizes() const noexcept { return nfc_; }

  // The bytes of a whole text, its first space dropped where encode() put one before it. Ids out of
  // range write nothing. With `show_special` control and unknown tokens write their names.
  std::string decode(std::span<const TokenId> ids, bool show_special) const;

  // The bytes that one token adds (maybe part of a character); empty for ids out of range.
  std::string_view token_bytes(TokenId id, bool show_special) const noexcept;
  // As in the file.
  std::string_view token_text(TokenId id) const noexcept { return vocabulary_->text(id); }
  // The token of exactly this text (as in the file).
  std::optional<TokenId> find_token(std::string_view text) const noexcept;

  std::size_t token_count() const noexcept { return vocabulary_->size(); }
  bool contains(TokenId id) const noexcept { return vocabulary_->contains(id); }
  bool is_control(TokenId id) const noexcept;
  bool is_end_of_generation(TokenId id) const noexcept;
  // Ascending; what `ignore_eos` bans.
  std::span<const TokenId> end_of_generation() const noexcept { return special_.end_of_generation; }
  std::optional<TokenId> bos() const noexcept { return special_.bos; }
  std::optional<TokenId> eos() const noexcept { return special_.eos; }
  const SpecialTokens& special() const noexcept { return special_; }

  // Whether encode() puts a space before a text, which decoding drops.
  bool has_space_prefix() const noexcept { return space_prefix_; }
  // "gpt2" or "llama", and the pre-tokenizer's name, as in the file (empty: none).
  const std::string& model_name() const noexcept { return model_name_; }
  const std::string& pretokenizer_name() const noexcept { return pretokenizer_name_; }

 private:
  Tokenizer() = default;
  Status load(const Checkpoint& checkpoint);
  Status load_bpe(const Checkpoint& checkpoint);
  Status recognize_patterns(const Checkpoint& checkpoint);
  Status load_spm(const Checkpoint& checkpoint);

  std::string model_name_;
  std::string pretokenizer_name_;
  bool space_prefix_ = false;
  bool nfc_ = false;  // texts are brought into normal form C first
  SpecialTokens special_;
  // Behind pointers, since the parts refer to each other.
  std::unique_ptr<Vocabulary> vocabulary_;
  std::unique_ptr<const SpecialSplitter> splitter_;
  std::unique_ptr<const FragmentEncoder> encoder_;
  std::unique_ptr<const TokenBytes> bytes_;
};

}  // namespace millrace
