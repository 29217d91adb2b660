#include "model/chat/fallback_sources.h"

namespace millrace {

// All system messages, one after the other.
const char* const system_text_part = R"jinja({%- set system = namespace(text="") %}
{%- for message in messages if message.role == "system" %}
  {%- set system.text = system.text ~ ("" if loop.first else "\n\n") ~ message.content %}
{%- endfor %}
)jinja";

// The format of V3 with its calls; `thinks` says how a turn is opened.
const char* const deepseek_v3_part = R"jinja({{- bos_token ~ system.text }}
{%- for message in messages %}
  {%- if message.role == "user" %}
    {{- "<｜User｜>" ~ message.content }}
  {%- elif message.role == "assistant" %}
    {%- if loop.first or loop.previtem.role != "tool" %}{{ "<｜Assistant｜>" }}{% endif %}
    {{- (message.content or "").split("</think>")[-1] }}
    {%- if message.tool_calls %}
      {{- "<｜tool▁calls▁begin｜>" }}
      {%- for call in message.tool_calls %}
        {%- set given = call.function.arguments %}
        {{- ("" if loop.first else "\n") ~ "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" }}
        {{- call.function.name ~ "\n```json\n" ~ (given if given is string else given | tojson) }}
        {{- "\n```<｜tool▁call▁end｜>" }}
      {%- endfor %}
      {{- "<｜tool▁calls▁end｜>" }}
    {%- endif %}
    {{- eos_token }}
  {%- elif message.role == "tool" %}
    {%- if loop.previtem.role != "tool" %}{{ "<｜tool▁outputs▁begin｜>" }}{% endif %}
    {{- "<｜tool▁output▁begin｜>" ~ message.content ~ "<｜tool▁output▁end｜>" }}
    {%- if loop.last or loop.nextitem.role != "tool" %}{{ "<｜tool▁outputs▁end｜>" }}{% endif %}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and (not messages or messages[-1].role != "tool") %}
  {{- "<｜Assistant｜>" ~ ("<think>\n" if thinks else "") }}
{%- endif %})jinja";

std::string deepseek_v3_source() {
  return std::string(system_text_part) + "{%- set thinks = false %}\n" + deepseek_v3_part;
}
std::string deepseek_r1_source() {
  return std::string(system_text_part) + "{%- set thinks = true %}\n" + deepseek_v3_part;
}

std::string deepseek_v31_source() {
  return std::string(system_text_part) + R"jinja({{- bos_token ~ system.text }}
{%- if tools %}
  {{- "\n\n## Tools\nYou have access to the following tools:\n" }}
  {%- for tool in tools %}
    {{- "\n### " ~ tool.function.name ~ "\nDescription: " ~ tool.function.description }}
    {{- "\n\nParameters: " ~ tool.function.parameters | tojson ~ "\n" }}
  {%- endfor %}
  {{- "\nIMPORTANT: ALWAYS adhere to this exact format for tool use:\n<｜tool▁calls▁begin｜>" }}
  {{- "<｜tool▁call▁begin｜>tool_call_name<｜tool▁sep｜>tool_call_arguments<｜tool▁call▁end｜>" }}
  {{- "{additional_tool_calls}<｜tool▁calls▁end｜>\n\nWhere:\n- `tool_call_name` must be an exact" }}
  {{- " match to one of the available tools\n- `tool_call_arguments` must be valid JSON that" }}
  {{- " strictly follows the tool's Parameters Schema\n- For multiple tool calls, chain them" }}
  {{- " directly without separators or spaces" }}
{%- endif %}
{%- for message in messages %}
  {%- if message.role == "user" %}
    {{- "<｜User｜>" ~ message.content }}
  {%- elif message.role == "assistant" %}
    {%- if not loop.first and loop.previtem.role == "user" %}
      {{- "<｜Assistant｜>" ~ ("</think>" if message.tool_calls else "<think></think>") }}
    {%- endif %}
    {{- (message.content or "").split("</think>")[-1] }}
    {%- if message.tool_calls %}
      {{- "<｜tool▁calls▁begin｜>" }}
      {%- for call in message.tool_calls %}
        {%- set given = call.function.arguments %}
        {{- "<｜tool▁call▁begin｜>" ~ call.function.name ~ "<｜tool▁sep｜>" }}
        {{- (given if given is string else given | tojson) ~ "<｜tool▁call▁end｜>" }}
      {%- endfor %}
      {{- "<｜tool▁calls▁end｜>" }}
    {%- endif %}
    {{- eos_token }}
  {%- elif message.role == "tool" %}
    {{- "<｜tool▁output▁begin｜>" ~ message.content ~ "<｜tool▁output▁end｜>" }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt and messages and messages[-1].role == "user" %}
  {{- "<｜Assistant｜>" ~ ("<think>" if thinking is true else "<think></think>") }}
{%- endif %})jinja";
}

std::string deepseek_v4_source() {
  return std::string(system_text_part) + R"jinja({%- set mark = "｜DSML｜" %}
{%- set thinks = enable_thinking | default(false) %}
{%- set turn = namespace(start=-1) %}
{%- for message in messages %}
  {%- if message.role == "user" %}{% set turn.start = loop.index0 %}{% endif %}
{%- endfor %}
{%- macro call_block() %}
{{- "<" ~ mark ~ "tool_calls>\n" ~ caller() ~ "</" ~ mark ~ "tool_calls>" }}
{%- endmacro %}
{%- macro example(name) %}
{{- "<" ~ mark ~ 'invoke name="$' ~ name ~ '">\n' ~ caller() ~ "...\n</" ~ mark ~ "invoke>\n" }}
{%- endmacro %}
{{- bos_token ~ system.text }}
{%- if tools %}
  {{- ("\n\n" if system.text else "") ~ "## Tools\n\nYou have access to a set of tools to help" }}
  {{- " answer the user's question. You can invoke tools by writing a \"<" ~ mark }}
  {{- "tool_calls>\" block like the following:\n\n" }}
  {%- call call_block() %}
    {%- call example("TOOL_NAME") %}
      {{- "<" ~ mark ~ 'parameter name="$PARAMETER_NAME" string="true|false">' }}
      {{- "$PARAMETER_VALUE</" ~ mark ~ "parameter>\n" }}
    {%- endcall %}
    {%- call example("TOOL_NAME2") %}{% endcall %}
  {%- endcall %}
  {{- "\n\nString parameters should be specified as is and set `string=\"true\"`. For all other" }}
  {{- " types (numbers, booleans, arrays, objects), pass the value in JSON format and set" }}
  {{-
    " `string=\"false\"`.\n\nIf thinking_mode is enabled (triggered by <think>), you MUST output" }}
  {{- " your complete reasoning inside <think>...</think> BEFORE any tool calls or final" }}
  {{-
    " response.\n\nOtherwise, output directly after </think> with tool calls or final response." }}
  {{- "\n\n### Available Tool Schemas\n\n" }}
  {%- for tool in tools %}{{ tool.function | tojson ~ "\n" }}{% endfor %}
  {{-
    "\nYou MUST strictly follow the above defined tool name and parameter schemas to invoke tool" }}
  {{- " calls.\n" }}
{%- endif %}
{%- for message in messages %}
  {%- if message.role == "user" %}
    {{- "<｜User｜>" ~ message.content }}
  {%- elif message.role == "tool" %}
    {{- ("<｜User｜>" if loop.previtem.role != "tool" else "\n\n") ~ "<tool_result>" }}
    {{- message.content ~ "</tool_result>" }}
  {%- elif message.role == "assistant" %}
    {%- set kept = thinks and (tools or loop.index0 > turn.start) %}
    {{- "<｜Assistant｜>" ~ ("<think>" ~ message.reasoning_content if kept else "") ~ "</think>" }}
    {{- message.content }}
    {%- if message.tool_calls %}
      {{- "\n\n" }}
      {%- call call_block() %}
        {%- for call in message.tool_calls %}
          {{- "<" ~ mark ~ 'invoke name="' ~ call.function.name ~ '">\n' }}
          {%- for name, value in call.function.arguments.items() %}
            {%- set bare = value is string %}
            {{- "<" ~ mark ~ 'parameter name="' ~ name ~ '" string="' ~ bare | string | lower }}
            {{- '">' ~ (value if bare else value | tojson) ~ "</" ~ mark ~ "parameter>\n" }}
          {%- endfor %}
          {{- "</" ~ mark ~ "invoke>\n" }}
        {%- endfor %}
      {%- endcall %}
    {%- endif %}
    {{- eos_token }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- "<｜Assistant｜>" ~ ("<think>" if thinks else "</think>") }}
{%- endif %})jinja";
}

std::string kimi_source() {
  return R"jinja({%- macro begin(kind, name) %}
{{- "<|im_" ~ kind ~ "|>" ~ name ~ "<|im_middle|>" }}
{%- endmacro %}
{%- set calls = namespace(count=0, results=0, names=[]) %}
{%- if tools %}{{ begin("system", "tool_declare") ~ tools | tojson ~ "<|im_end|>" }}{% endif %}
{%- if not messages or messages[0].role != "system" %}
  {{-
    begin("system", "system") ~ "You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>" }}
{%- endif %}
{%- for message in messages %}
  {%- set kind = message.role if message.role in ("user", "assistant") else "system" %}
  {{- begin(kind, message.name or message.role) }}
  {%- if message.role == "tool" %}
    {{-
      "## Return of " ~ calls.names[calls.results] | default("functions." ~ message.name) ~ "\n" }}
    {%- set calls.results = calls.results + 1 %}
  {%- endif %}
  {{- message.content if message.content is string }}
  {%- if message.tool_calls %}
    {{- "<|tool_calls_section_begin|>" }}
    {%- for call in message.tool_calls %}
      {%- set id = "functions." ~ call.function.name ~ ":" ~ calls.count %}
      {%- set calls.count = calls.count + 1 %}
      {%- set calls.names = calls.names + [id] %}
      {%- set given = call.function.arguments %}
      {{- "<|tool_call_begin|>" ~ id ~ "<|tool_call_argument_begin|>" }}
      {{- (given if given is string else given | tojson) ~ "<|tool_call_end|>" }}
    {%- endfor %}
    {{- "<|tool_calls_section_end|>" }}
  {%- endif %}
  {{- "<|im_end|>" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ begin("assistant", "assistant") }}{% endif %})jinja";
}

namespace {

// Tools are declared as types of TypeScript.
const char* const harmony_types_part = R"jinja({%- macro type_of(schema) %}
{%- if schema.type is sequence and schema.type is not string %}
  {{- schema.type | map("replace", "integer", "number") | join(" | ") }}
{%- elif schema.enum %}
  {{- schema.enum | map("tojson") | join(" | ") }}
{%- elif schema.type == "array" %}
  {{- (type_of(schema["items"]) if schema["items"] else "any") ~ "[]" }}
{%- elif schema.type == "object" %}
  {%- if schema.properties %}
    {{- "{\n" ~ fields_of(schema) ~ "}" }}
  {%- else %}
    {{- "object" }}
  {%- endif %}
{%- else %}
  {{- {"integer": "number"}.get(schema.type, schema.type) or "any" }}
{%- endif %}
{%- endmacro %}
{%- macro fields_of(schema) %}
{%- for name, field in schema.properties.items() %}
  {{- "// " ~ field.description ~ "\n" if field.description }}
  {{- name ~ ("" if name in (schema.required or []) else "?") ~ ": " ~ type_of(field) ~ "," }}
  {{- (" // default: " ~ field.default if field.default is defined) ~ "\n" }}
{%- endfor %}
{%- endmacro %}
)jinja";

}  // namespace

std::string harmony_source() {
  return std::string(harmony_types_part) +
         R"jinja({{- "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n" }}
{{- "Knowledge cutoff: 2024-06\nCurrent date: " ~ strftime_now("%Y-%m-%d") ~ "\n\nReasoning: " }}
{{- reasoning_effort | default("medium") ~ "\n\n# Valid channels: analysis, commentary, final. " }}
{{- "Channel must be included for every message." }}
{{- "\nCalls to these tools must go to the commentary channel: 'functions'." if tools }}
{{- "<|end|>" }}
{%- set has_system = messages and messages[0].role in ["system", "developer"] %}
{%- if has_system or tools %}
  {{- "<|start|>developer<|message|>" }}
  {{- "# Instructions\n\n" ~ messages[0].content ~ "\n\n" if has_system }}
  {%- if tools %}
    {{- "# Tools\n\n## functions\n\nnamespace functions {\n\n" }}
    {%- for tool in tools | map(attribute="function") %}
      {{- "// " ~ tool.description ~ "\ntype " ~ tool.name ~ " = " }}
      {%- if tool.parameters.properties %}
        {{- "(_: {\n" ~ fields_of(tool.parameters) ~ "}) => any;\n\n" }}
      {%- else %}
        {{- "() => any;\n\n" }}
      {%- endif %}
    {%- endfor %}
    {{- "} // namespace functions" }}
  {%- endif %}
  {{- "<|end|>" }}
{%- endif %}
{%- set state = namespace(called="", last_answer=-1) %}
{%- for message in messages %}
  {%- if message.role == "assistant" and not message.tool_calls %}
    {%- set state.last_answer = loop.index0 %}
  {%- endif %}
{%- endfor %}
{%- for message in messages %}
  {%- if message.role == "user" %}
    {{- "<|start|>user<|message|>" ~ message.content ~ "<|end|>" }}
  {%- elif message.role == "tool" %}
    {{- "<|start|>functions." ~ (message.name or state.called) ~ " to=assistant<|channel|>" }}
    {{- "commentary<|message|>" ~ message.content | tojson ~ "<|end|>" }}
  {%- elif message.role == "assistant" and message.tool_calls %}
    {%- set running = loop.index0 > state.last_answer %}
    {%- set thought = message.reasoning_content or message.content %}
    {{- "<|start|>assistant<|channel|>analysis<|message|>" ~ thought ~ "<|end|>"
        if thought and running }}
    {%- set call = message.tool_calls[0].function %}
    {%- set state.called = call.name %}
    {{- "<|start|>assistant to=functions." ~ call.name ~ "<|channel|>commentary json<|message|>" }}
    {{- (call.arguments if call.arguments is string else call.arguments | tojson) ~ "<|call|>" }}
  {%- elif message.role == "assistant" %}
    {{- "<|start|>assistant<|channel|>final<|message|>" ~ message.content ~ "<|end|>" }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|start|>assistant" }}{% endif %})jinja";
}

// GLM: one format, with line ends (4.5, 4.6) or without (4.7).
const char* const glm_part = R"jinja({%- macro visible(content) %}
{{- (content or "").split("</think>")[-1] | trim }}
{%- endmacro %}
{%- set turn = namespace(start=-1) %}
{%- for message in messages %}
  {%- if message.role == "user" %}{% set turn.start = loop.index0 %}{% endif %}
{%- endfor %}
{%- set quiet = enable_thinking is defined and not enable_thinking %}
{{- "[gMASK]<sop>" }}
{%- if tools %}
  {{-
    "<|system|>\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" }}
  {{- "You are provided with function signatures within <tools></tools> XML tags:\n<tools>\n" }}
  {%- for tool in tools %}{{ tool | tojson ~ "\n" }}{% endfor %}
  {{- "</tools>\n\nFor each function call, output the function name and arguments within the" }}
  {{- " following XML format:\n<tool_call>{function-name}" ~ nl }}
  {%- for i in (1, 2) %}
    {{- "<arg_key>{arg-key-%d}</arg_key>%s" % (i, nl) }}
    {{- "<arg_value>{arg-value-%d}</arg_value>%s" % (i, nl) }}
  {%- endfor %}
  {{- "..." ~ nl ~ "</tool_call>" }}
{%- endif %}
{%- for message in messages %}
  {%- if message.role == "system" %}
    {{- "<|system|>" ~ nl ~ message.content }}
  {%- elif message.role == "user" %}
    {{- "<|user|>" ~ nl ~ message.content }}
    {{- "/nothink" if nl and quiet and not message.content.endswith("/nothink") }}
  {%- elif message.role == "assistant" %}
    {%- set thought = (message.reasoning_content or "") | trim
                      if loop.index0 > turn.start else "" %}
    {{- "<|assistant|>" ~ nl }}
    {{- ("<think>" ~ thought if thought or nl else "") ~ "</think>" }}
    {{- nl ~ visible(message.content) if visible(message.content) }}
    {%- for call in message.tool_calls or [] %}
      {{- nl ~ "<tool_call>" ~ call.function.name ~ nl }}
      {%- for name, value in call.function.arguments.items() %}
        {{- "<arg_key>" ~ name ~ "</arg_key>" ~ nl ~ "<arg_value>" }}
        {{- (value if value is string else value | tojson) ~ "</arg_value>" ~ nl }}
      {%- endfor %}
      {{- "</tool_call>" }}
    {%- endfor %}
  {%- elif message.role == "tool" %}
    {{- "<|observation|>" if loop.first or loop.previtem.role != "tool" }}
    {{- nl ~ "<tool_response>" ~ nl ~ message.content ~ nl ~ "</tool_response>" }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- "<|assistant|>" ~ ((nl ~ "<think></think>" if quiet) if nl else
                          "</think>" if quiet else "<think>") }}
{%- endif %})jinja";

std::string glm45_source() { return std::string("{%- set nl = '\\n' %}\n") + glm_part; }
std::string glm47_source() { return std::string("{%- set nl = '' %}\n") + glm_part; }

std::string minimax_source() {
  return R"jinja({%- set has_system = messages and messages[0].role == "system" %}
{%- set turn = namespace(start=-1) %}
{%- for message in messages %}
  {%- if message.role == "user" %}{% set turn.start = loop.index0 %}{% endif %}
{%- endfor %}
{{- "]~!b[]~b]system\n" }}
{{- messages[0].content if has_system else "You are a helpful assistant." }}
{%- if tools %}
  {{- "\n\n# Tools\nYou may call one or more tools to assist with the user query.\nHere are the" }}
  {{- " tools available in JSONSchema format:\n\n<tools>\n" }}
  {%- for tool in tools %}{{ "<tool>" ~ tool.function | tojson ~ "</tool>\n" }}{% endfor %}
  {{- "</tools>\n\nWhen making tool calls, use XML format to invoke tools and pass parameters:" }}
  {{- '\n\n<minimax:tool_call>\n<invoke name="tool-name-1">' }}
  {%- for i in range(1, 3) %}
    {{- '\n<parameter name="param-key-%d">param-value-%d</parameter>' | format(i, i) }}
  {%- endfor %}
  {{- "\n...\n</invoke>\n</minimax:tool_call>" }}
{%- endif %}
{{- "[e~[\n" }}
{%- for message in messages %}
  {%- if message.role == "user" %}
    {{- "]~b]user\n" ~ message.content ~ "[e~[\n" }}
  {%- elif message.role == "assistant" %}
    {{- "]~b]ai\n" }}
    {%- if message.reasoning_content and loop.index0 > turn.start %}
      {{- "<think>\n" ~ message.reasoning_content ~ "\n</think>\n\n" }}
    {%- endif %}
    {{- message.content.split("</think>")[-1].strip("\n") if message.content }}
    {%- if message.tool_calls %}
      {{- "\n<minimax:tool_call>\n" }}
      {%- for call in message.tool_calls | map(attribute="function") %}
        {{- '<invoke name="' ~ call.name ~ '">\n' }}
        {%- for name, value in call.arguments | items %}
          {{- '<parameter name="' ~ name ~ '">' ~ (value if value is string else value | tojson) }}
          {{- "</parameter>\n" }}
        {%- endfor %}
        {{- "</invoke>\n" }}
      {%- endfor %}
      {{- "</minimax:tool_call>" }}
    {%- endif %}
    {{- "[e~[\n" }}
  {%- elif message.role == "tool" %}
    {{- "]~b]tool" if loop.first or loop.previtem.role != "tool" }}
    {{- "\n<response>" ~ message.content ~ "</response>" }}
    {{- "[e~[\n" if loop.last or loop.nextitem.role != "tool" }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ "]~b]ai\n<think>\n" }}{% endif %})jinja";
}

}  // namespace millrace
