#include "tools/chat_output.h"

#include <fmt/format.h>

#include <cstdio>
#include <ctime>
#include <utility>

namespace millrace::tools {

namespace {

jinja::Moment local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return {parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
          parts.tm_hour,        parts.tm_min,     parts.tm_sec};
}

// Arguments that are no JSON are kept as the model wrote them.
std::string arguments_text(const Json& arguments) {
  return arguments.as_string() != nullptr ? *arguments.as_string() : arguments.dump();
}

}  // namespace

Result<ChatPrompt> chat_prompt(const Tokenizer& tokenizer, const Checkpoint& checkpoint,
                               const std::string& text) {
  MILLRACE_ASSIGN(const ChatTemplate chat, ChatTemplate::from_checkpoint(checkpoint));
  ChatMessage message;
  message.role = "user";
  message.content = text;
  ChatRequest request;
  request.messages.push_back(std::move(message));
  request.now = local_time();
  MILLRACE_ASSIGN(const RenderedChat rendered, chat.render(request));
  ChatPrompt prompt;
  MILLRACE_ASSIGN(prompt.ids, encode_chat(tokenizer, rendered));
  if (prompt.ids.empty())
    return Error{ErrorCode::format,
                 fmt::format("{}: its chat template makes nothing of the message: leave out --chat",
                             checkpoint.files().front())};
  prompt.format = output_format(chat.source(false));
  prompt.in_reasoning = rendered.in_reasoning;
  return prompt;
}

// Reasoning is shown between marks, so that it is not taken for the answer where both streams meet.
void ChatOutput::show_reasoning(const std::string& text) {
  if (quiet_) return;
  if (!in_reasoning_) std::fputs("[reasoning]\n", stderr);
  in_reasoning_ = true;
  std::fputs(text.c_str(), stderr);
}

bool ChatOutput::take(const OutputDelta& delta) {
  all_.reasoning += delta.reasoning;
  all_.content += delta.content;
  all_.calls.insert(all_.calls.end(), delta.calls.begin(), delta.calls.end());
  if (!show_) return true;
  if (!delta.reasoning.empty()) show_reasoning(delta.reasoning);
  if (delta.content.empty() && delta.calls.empty()) return true;
  if (std::exchange(in_reasoning_, false)) std::fputs("\n[answer]\n", stderr);
  bool written = delta.content.empty() || out_.write(delta.content);
  for (const ToolCall& call : delta.calls)
    written = out_.write("\n[call] " + call.name + " " + arguments_text(call.arguments)) && written;
  return written;
}

void ChatOutput::add_to(Json& report) const {
  report.set("text", all_.content);
  report.set("reasoning", all_.reasoning.empty() ? Json() : Json(all_.reasoning));
  Json calls = Json::array();
  for (const ToolCall& call : all_.calls)
    calls.push(Json::object().set("name", call.name).set("arguments", call.arguments));
  report.set("tool_calls", std::move(calls));
}

}  // namespace millrace::tools
