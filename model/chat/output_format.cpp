#include "model/chat/output_format.h"

namespace millrace {

namespace {

// The marks may be put together from parts in the template: "'<' + dsml + 'tool_calls>'".
OutputFormat calls_of(std::string_view source) {
  const auto has = [&](std::string_view part) { return source.find(part) != source.npos; };
  if (has("<|channel|>") && has("<|message|>")) return {CallSyntax::harmony, false, "", ""};
  if (has("｜DSML｜")) {
    const char* name = has("tool_calls>") ? "tool_calls>" : "function_calls>";
    return {CallSyntax::dsml, true, std::string("<｜DSML｜") + name,
            std::string("</｜DSML｜") + name};
  }
  if (has("<｜tool▁calls▁begin｜>"))
    return {CallSyntax::deepseek, true, "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"};
  if (has("<|tool_calls_section_begin|>"))
    return {CallSyntax::kimi, true, "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"};
  if (has("minimax:tool_call"))
    return {CallSyntax::invoke_tags, true, "<minimax:tool_call>", "</minimax:tool_call>"};
  if (has("<arg_key>")) return {CallSyntax::arg_tags, true, "<tool_call>", "</tool_call>"};
  if (has("<function=")) return {CallSyntax::function_tags, true, "<tool_call>", "</tool_call>"};
  if (has("<tool_call>")) return {CallSyntax::json, true, "<tool_call>", "</tool_call>"};
  if (has("[TOOL_CALLS]")) return {CallSyntax::mistral, true, "[TOOL_CALLS]", ""};
  if (has("<|start_header_id|>") && has("ipython")) return {CallSyntax::bare_json, false, "", ""};
  return {};
}

}  // namespace

OutputFormat output_format(std::string_view template_source) {
  OutputFormat format = calls_of(template_source);
  if (format.calls != CallSyntax::harmony)
    format.reasoning = template_source.find("think>") != std::string_view::npos;
  return format;
}

}  // namespace millrace
