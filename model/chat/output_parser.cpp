#include "model/chat/output_parser.h"

#include <algorithm>
#include <utility>

#include "model/chat/call_text.h"

namespace millrace {

namespace {

constexpr std::string_view think_begin = "<think>";
constexpr std::string_view think_end = "</think>";
constexpr std::string_view blanks = " \t\r\n";
constexpr std::size_t npos = std::string_view::npos;

// How many bytes at the end of `text` could be the start of `mark`.
std::size_t held_bytes(std::string_view text, std::string_view mark) {
  for (std::size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size)
    if (mark.starts_with(text.substr(text.size() - size))) return size;
  return 0;
}

bool is_blank(std::string_view text) { return text.find_first_not_of(blanks) == npos; }

}  // namespace

OutputParser::OutputParser(OutputFormat format, bool in_reasoning, Json tools)
    : format_(std::move(format)),
      tools_(std::move(tools)),
      state_(in_reasoning ? State::reasoning : State::start),
      skip_space_(in_reasoning) {
  if (format_.calls == CallSyntax::harmony) state_ = State::header;
  // Only with tools is an answer that is JSON taken for a call.
  const bool has_tools = tools_.as_array() != nullptr && !tools_.as_array()->empty();
  if (format_.calls == CallSyntax::bare_json && !has_tools) format_.calls = CallSyntax::none;
}

OutputDelta OutputParser::push(std::string_view text, bool is_control) {
  if (format_.calls == CallSyntax::harmony) {
    if (is_control) harmony_control(text);
    else harmony_text(text);
  } else {
    const bool mark = text == format_.calls_begin || text == format_.calls_end ||
                      text == think_begin || text == think_end || state_ == State::calls;
    if (!is_control || mark) pending_ += text;
    advance(false);
  }
  return std::exchange(out_, {});
}

OutputDelta OutputParser::finish() {
  if (format_.calls == CallSyntax::harmony) {
    if (state_ == State::body) end_harmony_body();
  } else {
    advance(true);
    if (state_ != State::reasoning) emit_held_space();
  }
  return std::exchange(out_, {});
}

void OutputParser::advance(bool at_end) {
  while (step(at_end)) {
  }
}

// One step of the machine; false if it needs more text.
bool OutputParser::step(bool at_end) {
  switch (state_) {
    case State::start:
      return at_start(at_end);
    case State::calls:
      return in_calls(at_end);
    default:
      return in_text(at_end);
  }
}

// Blanks, then <think>, or the answer.
bool OutputParser::at_start(bool at_end) {
  const std::string_view text = pending_;
  const std::size_t first = std::min(text.find_first_not_of(blanks), text.size());
  const std::string_view rest = text.substr(first);
  if (rest.empty() && !at_end) return false;
  if (format_.reasoning) {
    if (rest.starts_with(think_begin)) {
      pending_.erase(0, first + think_begin.size());
      state_ = State::reasoning;
      skip_space_ = true;
      return true;
    }
    if (!at_end && think_begin.starts_with(rest)) return false;
  }
  if (format_.calls == CallSyntax::bare_json && (rest.starts_with('{'))) {
    state_ = State::calls;
    return true;
  }
  state_ = State::content;
  return true;
}

// Reasoning or answer: text up to the next mark.
bool OutputParser::in_text(bool at_end) {
  const bool reasoning = state_ == State::reasoning;
  const std::string_view mark = reasoning ? think_end : std::string_view(format_.calls_begin);
  const std::string_view text = pending_;
  const std::size_t at = mark.empty() ? npos : text.find(mark);
  if (at == npos) {
    const std::size_t held = at_end || mark.empty() ? 0 : held_bytes(text, mark);
    emit(text.substr(0, text.size() - held));
    pending_.erase(0, pending_.size() - held);
    return false;
  }
  emit(text.substr(0, at));
  if (reasoning) space_.clear();  // before a mark it is markup
  pending_.erase(0, at + mark.size());
  state_ = reasoning ? State::content : State::calls;
  skip_space_ = true;
  return true;
}

bool OutputParser::in_calls(bool at_end) {
  const std::string_view text = pending_;
  const std::string_view mark = format_.calls_end;
  const std::size_t at = mark.empty() ? npos : text.find(mark);
  if (at == npos && !at_end) return false;
  const std::string block(text.substr(0, at));
  const std::string raw =
      format_.calls_begin + block + (at == npos ? std::string() : format_.calls_end);
  pending_.erase(0, at == npos ? npos : at + mark.size());
  state_ = State::content;
  finish_calls(block, raw);
  return at != npos;
}

void OutputParser::finish_calls(std::string_view block, std::string_view raw) {
  auto calls = parse_calls(block, format_.calls, tools_);
  if (calls) {
    for (ToolCall& call : *calls) out_.calls.push_back(std::move(call));
    space_.clear();
    skip_space_ = true;
    return;
  }
  skip_space_ = false;
  emit(raw);
}

// Text of the current part; blanks at its end wait for what follows.
void OutputParser::emit(std::string_view text) {
  if (skip_space_) text.remove_prefix(std::min(text.find_first_not_of(blanks), text.size()));
  if (text.empty()) return;
  skip_space_ = false;
  if (is_blank(text)) {
    space_ += text;
    return;
  }
  std::string& target = state_ == State::reasoning ? out_.reasoning : out_.content;
  target += std::exchange(space_, {});
  const std::size_t end = text.find_last_not_of(blanks) + 1;
  target += text.substr(0, end);
  space_ = text.substr(end);
  if (state_ == State::content) has_content_ = true;
}

void OutputParser::emit_held_space() {
  if (has_content_) out_.content += std::exchange(space_, {});
}

// gpt-oss: <|start|>assistant to=functions.F<|channel|>commentary json<|message|>{…}<|call|>

void OutputParser::harmony_control(std::string_view mark) {
  if (mark == "<|message|>") {
    if (state_ == State::header) begin_harmony_body();
    return;
  }
  if (state_ == State::body) end_harmony_body();
  header_ += mark;  // <|channel|> and <|constrain|> separate the words of a header
}

void OutputParser::harmony_text(std::string_view text) {
  if (state_ == State::header) header_ += text;
  else if (!recipient_.empty()) pending_ += text;
  else if (channel_ == "analysis") out_.reasoning += text;
  else out_.content += text;
}

void OutputParser::begin_harmony_body() {
  const auto word_behind = [&](std::string_view mark) {
    const std::size_t at = header_.rfind(mark);
    if (at == npos) return std::string();
    const std::size_t begin = at + mark.size();
    return header_.substr(begin, header_.find_first_of(" \n<", begin) - begin);
  };
  channel_ = word_behind("<|channel|>");
  recipient_ = word_behind("to=");
  if (recipient_.starts_with("functions.")) recipient_.erase(0, 10);
  header_.clear();
  state_ = State::body;
}

void OutputParser::end_harmony_body() {
  state_ = State::header;
  header_.clear();
  if (recipient_.empty()) return;
  auto arguments = Json::parse(pending_);
  const bool is_call = arguments && arguments->as_object() != nullptr;
  // What is no JSON is handed on as the model wrote it, for the caller to judge.
  out_.calls.push_back({"", std::exchange(recipient_, {}),
                        is_call ? *std::move(arguments) : Json(std::string_view(pending_))});
  pending_.clear();
}

}  // namespace millrace
