// Which patterns split the text of a model, by the name in tokenizer.ggml.pre. Constant data, any
// thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct PretokenizerRules {
  // Applied in order: each pattern cuts every segment of the one before into gaps and matches.
  std::span<const char* const> patterns;
  // A segment that is a token as a whole is that token, whatever the merges would give.
  bool ignore_merges = false;
  bool add_bos = false;  // where the file has no tokenizer.ggml.add_bos_token
};

// The name of the rules with these patterns, as tokenizer.json writes them; empty: none. Such files
// say themselves whether whole words are tokens and BOS is added.
std::string_view recognize_pretokenizer(std::span<const std::string> patterns);

// nullptr: no such name. "default" is the name for files without one.
const PretokenizerRules* find_pretokenizer(std::string_view name) noexcept;

std::vector<std::string_view> pretokenizer_names();

}  // namespace millrace
