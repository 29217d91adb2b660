// A conversation as the caller has it. Plain data.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/chat/jinja/template.h"
#include "runtime/base/json.h"

namespace millrace {

struct ToolCall {
  std::string id;    // empty: none
  std::string name;  // of the function
  Json arguments;    // an object; or a string: the arguments as a model wrote them
};

struct ChatMessage {
  std::string role;  // system, user, assistant, tool …
  // A string, null, or a list of parts {"type": "text", "text": …}.
  Json content;
  std::string reasoning_content;  // empty: none
  std::vector<ToolCall> tool_calls;
  std::string tool_call_id;  // of a tool's result; empty: none
  std::string name;          // empty: none
};

struct ChatRequest {
  std::vector<ChatMessage> messages;
  Json tools;  // a list of {"type": "function", "function": {name, description, parameters}}, or
               // null
  bool add_generation_prompt = true;    // the turn of the assistant is opened
  std::optional<bool> enable_thinking;  // none: as the template has it by default
  std::string reasoning_effort;         // low, medium, high …; empty: as the template has it
  Json variables;                       // an object: further variables of the template; or null
  std::optional<jinja::Moment> now;     // none: templates that ask for the date get none
};

}  // namespace millrace
