// How raw text becomes tokens: byte-level BPE and SPM implement it.
#pragma once

#include <span>
#include <vector>

#include "model/tokenizer/special_splitter.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

class FragmentEncoder {
 public:
  virtual ~FragmentEncoder() = default;
  // Appends the tokens of a text's fragments to `out`, in order. The raw bytes may be anything, in
  // all less than 4 GiB. Any thread. Fails with `unsupported` if a limit of PCRE2 is met.
  virtual Status encode(std::span<const Fragment> fragments, std::vector<TokenId>& out) const = 0;
};

}  // namespace millrace
