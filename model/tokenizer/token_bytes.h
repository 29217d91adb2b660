// What each token writes. Built once, then read-only: any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/vocabulary.h"

namespace millrace {

enum class TokenTextStyle : std::uint8_t {
  byte_alphabet,  // byte-level BPE
  spm,            // '▁' is a space
};

class TokenBytes {
 public:
  TokenBytes(const Vocabulary& vocabulary, TokenTextStyle style);

  // The bytes that the token adds to a text, possibly part of a character. Nothing for control,
  // unknown and unused tokens.
  std::string_view of(TokenId id) const noexcept {
    MILLRACE_DCHECK(id >= 0 && static_cast<std::size_t>(id) + 1 < starts_.size());
    const std::size_t index = static_cast<std::size_t>(id);
    return std::string_view(bytes_).substr(starts_[index], starts_[index + 1] - starts_[index]);
  }

 private:
  std::string bytes_;
  std::vector<std::uint32_t> starts_;  // one more than tokens
};

}  // namespace millrace
