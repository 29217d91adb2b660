// What a model writes, apart: its reasoning, its answer, its calls of tools. Takes text as it comes
// and gives each part on as soon as it is certain; only what could be the start of a mark is held
// back. What looks like a call and is none stays text: nothing is lost.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/chat/chat_message.h"
#include "model/chat/output_format.h"

namespace millrace {

struct OutputDelta {
  std::string reasoning;
  std::string content;
  std::vector<ToolCall> calls;  // complete ones
};

// One per generated answer. Not thread-safe. The outcome does not depend on how the text is cut
// into pieces, except that control tokens are pieces of their own.
class OutputParser {
 public:
  // `in_reasoning`: as RenderedChat says of the prompt. `tools`: as in the request.
  OutputParser(OutputFormat format, bool in_reasoning, Json tools);

  // `is_control`: the text is that of a control token (which writes nothing unless it is a mark).
  // The marks of gpt-oss are marks only then; those of others are found in any text.
  OutputDelta push(std::string_view text, bool is_control = false);
  // The end. Reasoning or calls that were not closed end here.
  OutputDelta finish();

 private:
  enum class State : std::uint8_t { start, reasoning, content, calls, header, body };

  void advance(bool at_end);
  bool step(bool at_end);
  bool at_start(bool at_end);
  bool in_text(bool at_end);
  bool in_calls(bool at_end);
  void finish_calls(std::string_view block, std::string_view raw);
  void emit(std::string_view text);
  void emit_held_space();
  void harmony_control(std::string_view mark);
  void harmony_text(std::string_view text);
  void begin_harmony_body();
  void end_harmony_body();

  OutputFormat format_;
  Json tools_;
  State state_;
  std::string pending_;      // not yet decided
  std::string space_;        // white space that only counts if text follows
  bool skip_space_ = false;  // white space at the start of this part is markup
  bool has_content_ = false;
  OutputDelta out_;
  // gpt-oss
  std::string header_;
  std::string recipient_;
  std::string channel_;
};

}  // namespace millrace
