// The tokens of a model: text, kind and score by id, and the id by text. Owned by the Tokenizer;
// read-only once it is built, then any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/format/checkpoint.h"
#include "runtime/base/check.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

// The value is the one that tokenizer.ggml.token_type holds.
enum class TokenKind : std::uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

inline constexpr TokenId no_token = -1;

class Vocabulary {
 public:
  // Reads tokenizer.ggml.tokens, token_type and scores. Fails with `format` if tokens are missing,
  // too many, or if an array has another length or a value that it must not have.
  static Result<Vocabulary> from_checkpoint(const Checkpoint& checkpoint);

  std::size_t size() const noexcept { return kinds_.size(); }
  bool contains(TokenId id) const noexcept {
    return id >= 0 && static_cast<std::size_t>(id) < kinds_.size();
  }

  // As the file has it: alphabet text for byte-level BPE, '▁' for spaces in SPM. May be empty.
  std::string_view text(TokenId id) const noexcept {
    MILLRACE_DCHECK(contains(id));
    const std::size_t index = static_cast<std::size_t>(id);
    return std::string_view(texts_).substr(starts_[index], starts_[index + 1] - starts_[index]);
  }
  TokenKind kind(TokenId id) const noexcept {
    MILLRACE_DCHECK(contains(id));
    return kinds_[static_cast<std::size_t>(id)];
  }
  float score(TokenId id) const noexcept {  // 0 where the file has no scores
    MILLRACE_DCHECK(contains(id));
    return scores_.empty() ? 0.0F : scores_[static_cast<std::size_t>(id)];
  }

  // The first token with this text; no_token if there is none or `text` is empty.
  TokenId find(std::string_view text) const noexcept;

  std::size_t longest_text_bytes() const noexcept { return longest_text_bytes_; }

  // For files that declare a control token as a normal one. Only while the tokenizer is built.
  void set_kind(TokenId id, TokenKind kind) noexcept {
    MILLRACE_CHECK(contains(id));
    kinds_[static_cast<std::size_t>(id)] = kind;
  }

 private:
  Status store_texts(const Checkpoint& checkpoint);
  Status store_kinds(const Checkpoint& checkpoint);
  Status store_scores(const Checkpoint& checkpoint);
  void build_index();

  // An open-addressing table of ids; the texts they are compared with stay where they are.
  struct Slot {
    std::uint32_t hash = 0;
    TokenId id = no_token;
  };

  std::string texts_;                  // all texts, one after the other
  std::vector<std::uint32_t> starts_;  // size() + 1 offsets into texts_
  std::vector<TokenKind> kinds_;
  std::vector<float> scores_;  // empty, or one a token
  std::vector<Slot> slots_;    // a power of two, at most half full
  std::size_t longest_text_bytes_ = 0;
};

}  // namespace millrace
