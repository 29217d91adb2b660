// Finds special tokens in text before it is tokenized. Built once, then read-only: any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "model/tokenizer/vocabulary.h"
#include "runtime/base/text_range.h"

namespace millrace {

// A stretch of raw text, or a special token that was found in it.
struct Fragment {
  std::string_view raw;  // empty for a token
  TokenId token = no_token;
};

class SpecialSplitter {
 public:
  // Keeps a reference: `vocabulary` must stay where it is.
  explicit SpecialSplitter(const Vocabulary& vocabulary);

  // Cuts `text` at the texts of special tokens: the longest token takes its places first, then the
  // next in what is left (equal lengths: lower id first). User-defined tokens are always found,
  // control and unknown ones only if `parse_special`, and nowhere that touches `never_special`
  // (ascending). The fragments point into `text`.
  std::vector<Fragment> split(std::string_view text, bool parse_special,
                              std::span<const TextRange> never_special = {}) const;

 private:
  // Which tokens occur at all, by rank: one pass over the text, however many tokens there are.
  std::vector<bool> occurring(std::string_view text) const;
  bool wanted(std::size_t rank, bool parse_special) const noexcept;

  struct Bucket {  // tokens of one first byte: sorted_[begin, end)
    std::uint32_t begin = 0;
    std::uint32_t end = 0;
  };

  const Vocabulary& vocabulary_;
  std::vector<TokenId> by_rank_;          // longest text first
  std::vector<std::uint32_t> rank_of_;    // beside sorted_
  std::vector<std::string_view> sorted_;  // texts in byte order
  std::array<Bucket, 256> buckets_{};
};

}  // namespace millrace
