// Tokens to text as they come. A token can end inside a character; the stream holds those bytes
// back, so that what it hands out is always valid UTF-8.
#pragma once

#include <string>
#include <string_view>

#include "model/tokenizer/tokenizer.h"
#include "runtime/base/ids.h"

namespace millrace {

struct TextStreamOptions {
  bool show_special = false;  // control tokens write their names
  // The tokens are a text from its beginning, so a space that encode() put before it is dropped;
  // not so for what continues a prompt.
  bool at_start = false;
};

// One stream per generated text. Not thread-safe; `tokenizer` must outlive it. No allocation once
// its buffers have grown to the longest token.
class TextStream {
 public:
  explicit TextStream(const Tokenizer& tokenizer, TextStreamOptions options = {});

  // The text that became complete with this token: valid until the next call. Bytes that can belong
  // to no character are U+FFFD, one each.
  std::string_view push(TokenId id);
  // The end: what was held back, as U+FFFD. The stream may be used again.
  std::string_view flush();

 private:
  const Tokenizer& tokenizer_;
  TextStreamOptions options_;
  bool drop_space_;
  std::string held_;   // at most 3 bytes between calls
  std::string ready_;  // what the last call handed out
};

}  // namespace millrace
