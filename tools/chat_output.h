// The answer of a chat, apart: on stdout what was answered, and each call of a tool in a line of
// its own; on stderr what the model thought before. One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/chat/chat_template.h"
#include "model/chat/output_parser.h"
#include "runtime/base/json.h"
#include "tools/command.h"

namespace millrace::tools {

// A prompt in the model's template, and how its answer will be written.
struct ChatPrompt {
  std::vector<TokenId> ids;
  OutputFormat format;
  bool in_reasoning = false;
};
// `text` as the one message of a user. Errors as ChatTemplate's and encode_chat's.
Result<ChatPrompt> chat_prompt(const Tokenizer& tokenizer, const Checkpoint& checkpoint,
                               const std::string& text);

class ChatOutput {
 public:
  // With `show` false nothing is printed; with `quiet` no reasoning is.
  ChatOutput(const ChatPrompt& prompt, ResultOutput& out, bool show, bool quiet)
      : parser_(prompt.format, prompt.in_reasoning, {}), out_(out), show_(show), quiet_(quiet) {}

  // As OutputParser::push. False once stdout takes no more.
  bool text(std::string_view piece) { return take(parser_.push(piece)); }
  bool control(std::string_view mark) { return take(parser_.push(mark, true)); }
  bool finish() { return take(parser_.finish()); }

  // The whole answer, as keys of the report: text, reasoning (null: none), tool_calls.
  void add_to(Json& report) const;

 private:
  bool take(const OutputDelta& delta);
  void show_reasoning(const std::string& text);

  OutputParser parser_;
  ResultOutput& out_;
  bool show_, quiet_;
  OutputDelta all_;
  bool in_reasoning_ = false;  // on the screen
};

}  // namespace millrace::tools
