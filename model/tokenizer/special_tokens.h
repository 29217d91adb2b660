// The tokens with a role: begin and end of text, ends of generation, infill. Filled once, then
// read-only.
#pragma once

#include <optional>
#include <vector>

#include "model/format/checkpoint.h"
#include "model/tokenizer/vocabulary.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

// What holds where the file says nothing.
struct SpecialDefaults {
  TokenId bos = no_token;
  TokenId eos = no_token;
  TokenId unknown = no_token;
  bool add_bos = false;
  bool add_eos = false;
};

struct SpecialTokens {
  std::optional<TokenId> bos, eos, unknown, padding;
  std::optional<TokenId> end_of_turn, end_of_message;
  std::optional<TokenId> fim_prefix, fim_suffix, fim_middle, fim_pad, fim_repository, fim_separator;
  bool add_bos = false;                    // only with a bos
  bool add_eos = false;                    // only with an eos
  std::vector<TokenId> end_of_generation;  // ascending
};

// Reads the ids from the file's keys, then by well-known texts. Tokens that end generation or mark
// infill become control tokens in `vocabulary`, whatever type the file gives them. Ids that are out
// of range are ignored with a warning; keys of a wrong type are a `format` error.
Result<SpecialTokens> read_special_tokens(const Checkpoint& checkpoint,
                                          const SpecialDefaults& defaults, Vocabulary& vocabulary);

}  // namespace millrace
