// How a family writes reasoning and tool calls. Known from the template that made the prompt.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

enum class CallSyntax : std::uint8_t {
  none,
  json,           // {"name": …, "arguments": {…}} between tags (Qwen2.5, Qwen3, Hermes)
  function_tags,  // <function=NAME> <parameter=KEY> (Qwen3-Coder, Qwen3.5)
  arg_tags,       // NAME <arg_key> <arg_value> (GLM)
  invoke_tags,    // <invoke name="NAME"> <parameter name="KEY"> (MiniMax-M2)
  dsml,           // the same with marks of its own and string="true|false" (DeepSeek V3.2, V4)
  deepseek,       // marks, name and JSON (DeepSeek R1, V3, V3.1)
  kimi,           // marks, functions.NAME:INDEX and JSON (Kimi-K2)
  mistral,        // [TOOL_CALLS] and a JSON list, or NAME[ARGS]{…}
  bare_json,      // the whole answer is {"name": …, "parameters": {…}} (Llama 3.1)
  harmony,        // channels and recipients (gpt-oss)
};

struct OutputFormat {
  CallSyntax calls = CallSyntax::none;
  bool reasoning = false;   // <think> … </think> may come first
  std::string calls_begin;  // empty: none, or the whole answer (bare_json)
  std::string calls_end;    // empty: the calls go on to the end
};

// Read from the marks that occur in the source of a template (ChatTemplate::source).
OutputFormat output_format(std::string_view template_source);

}  // namespace millrace
