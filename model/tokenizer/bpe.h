// Byte-level BPE (tokenizer.ggml.model "gpt2"): pre-tokenizer, then merges by rank in each segment.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "model/format/checkpoint.h"
#include "model/tokenizer/fragment_encoder.h"
#include "model/tokenizer/merger.h"
#include "model/tokenizer/pretokenizer.h"
#include "model/tokenizer/vocabulary.h"

namespace millrace {

class BpeEncoder final : public FragmentEncoder {
 public:
  // Reads tokenizer.ggml.merges; keeps a reference to `vocabulary`, which must stay where it is.
  // Fails with `format`, naming number and text, if a merge has no two parts or if a part or the
  // result is no token.
  static Result<std::unique_ptr<BpeEncoder>> create(const Checkpoint& checkpoint,
                                                    const Vocabulary& vocabulary,
                                                    const PretokenizerRules& rules);

  // Bytes that are not valid UTF-8 are segments of their own, so that nothing is lost. A byte that
  // the vocabulary has no token for is left out.
  Status encode(std::span<const Fragment> fragments, std::vector<TokenId>& out) const override;

 private:
  class Run;  // the state of one encode call

  // Merges by the pair of ids: open addressing, a power of two of slots, at most half full.
  class MergeTable {
   public:
    void reserve(std::size_t merges);
    void insert(TokenId left, TokenId right, Merge merge);  // the first of equal pairs stays
    Merge find(TokenId left, TokenId right) const noexcept;

   private:
    struct Slot {
      std::uint64_t pair = empty;
      Merge merge;
    };
    static constexpr std::uint64_t empty = ~std::uint64_t{0};
    std::size_t slot_of(std::uint64_t pair) const noexcept;
    std::vector<Slot> slots_;
    unsigned shift_ = 0;
  };

  BpeEncoder(const Vocabulary& vocabulary, Pretokenizer pretokenizer, bool ignore_merges);
  Status read_merges(const Checkpoint& checkpoint);
  TokenId whole_segment(std::string_view alphabet_text) const noexcept;

  const Vocabulary& vocabulary_;
  Pretokenizer pretokenizer_;
  bool ignore_merges_;
  std::array<TokenId, 256> byte_tokens_{};
  MergeTable merges_;
};

}  // namespace millrace
