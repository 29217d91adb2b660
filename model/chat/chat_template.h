// A model's chat template: a conversation to the prompt that the model was trained on. The door to
// this folder. Built once from a checkpoint's metadata; immutable, so any number of threads may use
// it at once.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/chat/chat_message.h"
#include "model/chat/jinja/template.h"
#include "model/chat/template_features.h"
#include "model/format/checkpoint.h"
#include "model/tokenizer/tokenizer.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/base/text_range.h"

namespace millrace {

struct RenderedChat {
  std::string text;
  // Where the text comes from the conversation and not from the template: ascending. There the
  // texts of control tokens stay text (see encode_chat).
  std::vector<TextRange> foreign;
  // The prompt ends in an opened <think>: what the model writes begins inside its reasoning.
  bool in_reasoning = false;
};

class ChatTemplate {
 public:
  // The template in tokenizer.chat_template, and its variant for tools (…chat_template.tool_use).
  // Without one, that of the family which the vocabulary clearly belongs to, said in a warning;
  // `unsupported` if there is no such family. `format` if the template is malformed; the message
  // names file and line.
  static Result<ChatTemplate> from_checkpoint(const Checkpoint& checkpoint);

  struct Sources {
    std::string name;      // for messages: the file
    std::string plain;     // the template
    std::string tool_use;  // empty: the same
    std::string bos, eos;  // texts of these tokens; empty: none
  };
  static Result<ChatTemplate> from_sources(const Sources& sources);

  // `usage` errors: what the template refuses or has no place for (tools, parts that are no text);
  // `format` errors: what it does wrong, or when it does not end (see limits.h).
  Result<RenderedChat> render(const ChatRequest& request) const;

  bool takes_tools() const noexcept { return with_tools_.features.tools; }
  // The source that a request with or without tools uses; for reading how the model writes calls.
  const std::string& source(bool with_tools) const noexcept {
    return with_tools ? with_tools_.source : plain_.source;
  }

 private:
  struct Variant {
    std::string source;
    std::optional<jinja::Template> program;
    TemplateFeatures features;
  };

  ChatTemplate() = default;
  static Result<Variant> load(const std::string& source, const Sources& sources);

  std::string name_, bos_, eos_;
  Variant plain_, with_tools_;
};

// The ids of a rendered chat: texts of control tokens become those tokens where the template wrote
// them, and nowhere else. BOS comes first if the model asks for it and the template did not write
// it. Fails as Tokenizer::encode.
Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer, const RenderedChat& chat);

}  // namespace millrace
