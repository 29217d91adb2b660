// The text of tool calls, as models write them, to calls.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "model/chat/chat_message.h"
#include "model/chat/output_format.h"

namespace millrace {

// What stands between the marks of one block of calls. Nothing if it is malformed: then it is
// better shown as text than lost. `tools` (a list, or null) tells which parameters are strings,
// where the syntax does not.
std::optional<std::vector<ToolCall>> parse_calls(std::string_view block, CallSyntax syntax,
                                                 const Json& tools);

// {"name": …, "arguments" or "parameters": {…}}.
std::optional<ToolCall> parse_json_call(std::string_view text);

}  // namespace millrace
