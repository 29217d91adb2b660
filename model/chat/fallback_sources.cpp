#include "model/chat/fallback_sources.h"

namespace millrace {

const char* const qwen_tools_part = R"jinja({%- macro tool_list() %}
{{- "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\n" }}
{{- "You are provided with function signatures within <tools></tools> XML tags:\n<tools>" }}
{%- for tool in tools %}
  {{- "\n" ~ tool | tojson }}
{%- endfor %}
{{- "\n</tools>\n\nFor each function call, return a json object with function name and " }}
{{- "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n" }}
{{- '{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>' }}
{%- endmacro %}
{%- macro call_list(message) %}
{%- for call in message.tool_calls or [] %}
  {%- set given = call.function.arguments %}
  {{- '\n<tool_call>\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
  {{- (given if given is string else given | tojson) ~ "}\n</tool_call>" }}
{%- endfor %}
{%- endmacro %}
)jinja";

// Results of tools, several in a row as one turn of the user.
const char* const qwen_results_part = R"jinja({%- macro tool_result(message, loop) %}
{%- if loop.first or loop.previtem.role != "tool" %}
  {{- "<|im_start|>user" }}
{%- endif %}
{{- "\n<tool_response>\n" ~ message.content ~ "\n</tool_response>" }}
{%- if loop.last or loop.nextitem.role != "tool" %}
  {{- "<|im_end|>\n" }}
{%- endif %}
{%- endmacro %}
)jinja";

// Where the running turn begins, and reasoning apart from its answer.
const char* const reasoning_part = R"jinja({%- set turn = namespace(start=-1) %}
{%- for message in messages %}
  {%- if message.role == "user" %}{% set turn.start = loop.index0 %}{% endif %}
{%- endfor %}
{%- macro answer_of(message) %}
{%- if message.content is string %}
  {{- message.content.split("</think>")[-1].lstrip("\n") }}
{%- endif %}
{%- endmacro %}
{%- macro reasoning_of(message) %}
{%- if message.reasoning_content is string %}
  {{- message.reasoning_content.strip("\n") }}
{%- elif message.content is string and "</think>" in message.content %}
  {{- message.content.split("</think>")[0].split("<think>")[-1].strip("\n") }}
{%- endif %}
{%- endmacro %}
)jinja";

std::string qwen2_source() {
  return std::string(qwen_tools_part) + qwen_results_part + R"jinja(
{%- set system = namespace(text="You are Qwen, created by Alibaba Cloud. "
                                "You are a helpful assistant.") %}
{%- if messages and messages[0].role == "system" %}{% set system.text = messages[0].content %}
{%- endif %}
{{- "<|im_start|>system\n" ~ system.text }}
{%- if tools %}{{ tool_list() }}{% endif %}
{{- "<|im_end|>\n" }}
{%- for message in messages %}
  {%- if message.role == "tool" %}
    {{- tool_result(message, loop) }}
  {%- elif not (loop.first and message.role == "system") %}
    {{- "<|im_start|>" ~ message.role }}
    {%- if message.content or not message.tool_calls %}{{ "\n" ~ message.content }}{% endif %}
    {{- call_list(message) ~ "<|im_end|>\n" }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\n" }}{% endif %})jinja";
}

namespace {

// A conversation of Qwen3 without what its end asks for.
std::string qwen3_turns() {
  return std::string(qwen_tools_part) + qwen_results_part + reasoning_part + R"jinja(
{%- set has_system = messages and messages[0].role == "system" %}
{%- if tools %}
  {{- "<|im_start|>system\n" ~ (messages[0].content ~ "\n\n" if has_system else "") }}
  {{- tool_list() | trim ~ "<|im_end|>\n" }}
{%- elif has_system %}
  {{- "<|im_start|>system\n" ~ messages[0].content ~ "<|im_end|>\n" }}
{%- endif %}
{%- for message in messages %}
  {%- if message.role == "tool" %}
    {{- tool_result(message, loop) }}
  {%- elif message.role == "assistant" %}
    {%- set reasoning = reasoning_of(message) %}
    {%- set answer = answer_of(message) %}
    {{- "<|im_start|>assistant\n" }}
    {%- if loop.index0 > turn.start and reasoning %}
      {{- "<think>\n" ~ reasoning ~ "\n</think>\n\n" }}
    {%- endif %}
    {%- set calls = call_list(message) %}
    {{- answer ~ (calls if answer else calls.lstrip("\n")) ~ "<|im_end|>\n" }}
  {%- elif not (loop.first and message.role == "system") %}
    {{- "<|im_start|>" ~ message.role ~ "\n" ~ message.content ~ "<|im_end|>\n" }}
  {%- endif %}
{%- endfor %})jinja";
}

}  // namespace

std::string qwen3_source() {
  return qwen3_turns() + R"jinja(
{%- if add_generation_prompt %}
  {{- "<|im_start|>assistant\n" }}
  {%- if enable_thinking is defined and not enable_thinking %}
    {{- "<think>\n\n</think>\n\n" }}
  {%- endif %}
{%- endif %})jinja";
}

std::string qwen3_thinking_source() {
  return qwen3_turns() + R"jinja(
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\n<think>\n" }}{% endif %})jinja";
}

std::string qwen35_source() {
  return std::string(qwen_results_part) + reasoning_part + R"jinja(
{%- set has_system = messages and messages[0].role == "system" %}
{%- set system = (messages[0].content | trim) if has_system else "" %}
{%- if tools %}
  {{- "<|im_start|>system\n# Tools\n\nYou have access to the following functions:\n\n<tools>" }}
  {%- for tool in tools %}{{ "\n" ~ tool | tojson }}{% endfor %}
  {{- "\n</tools>\n\nIf you choose to call a function ONLY reply in the following format with NO" }}
  {{-
    " suffix:\n\n<tool_call>\n<function=example_function_name>\n<parameter=example_parameter_1>" }}
  {{-
    "\nvalue_1\n</parameter>\n<parameter=example_parameter_2>\nThis is the value for the second" }}
  {{- " parameter\nthat can span\nmultiple lines\n</parameter>\n</function>\n</tool_call>\n\n" }}
  {{- "<IMPORTANT>\nReminder:\n- Function calls MUST follow the specified format: an inner" }}
  {{- " <function=...></function> block must be nested within <tool_call></tool_call> XML tags\n" }}
  {{- "- Required parameters MUST be specified\n- You may provide optional reasoning for your" }}
  {{- " function call in natural language BEFORE the function call, but NOT after\n- If there is" }}
  {{- " no function call available, answer the question like normal with your current knowledge" }}
  {{- " and do not tell the user about function calls\n</IMPORTANT>" }}
  {{- ("\n\n" ~ system if system else "") ~ "<|im_end|>\n" }}
{%- elif has_system %}
  {{- "<|im_start|>system\n" ~ system ~ "<|im_end|>\n" }}
{%- endif %}
{%- for message in messages %}
  {%- if message.role == "tool" %}
    {{- tool_result(message, loop) }}
  {%- elif message.role == "assistant" %}
    {{- "<|im_start|>assistant\n" }}
    {%- if loop.index0 > turn.start %}
      {{- "<think>\n" ~ reasoning_of(message) | trim ~ "\n</think>\n\n" }}
    {%- endif %}
    {%- set answer = answer_of(message) | trim %}
    {{- answer }}
    {%- for call in message.tool_calls or [] %}
      {{- ("\n\n" if loop.first and answer else "" if loop.first else "\n") ~ "<tool_call>\n" }}
      {{- "<function=" ~ call.function.name ~ ">\n" }}
      {%- for name, value in call.function.arguments.items() %}
        {{- "<parameter=" ~ name ~ ">\n" ~ (value if value is string else value | tojson) }}
        {{- "\n</parameter>\n" }}
      {%- endfor %}
      {{- "</function>\n</tool_call>" }}
    {%- endfor %}
    {{- "<|im_end|>\n" }}
  {%- elif not (loop.first and message.role == "system") %}
    {{- "<|im_start|>" ~ message.role ~ "\n" ~ message.content | trim ~ "<|im_end|>\n" }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
  {{- "<|im_start|>assistant\n<think>\n" }}
  {%- if enable_thinking is defined and not enable_thinking %}{{ "\n</think>\n\n" }}{% endif %}
{%- endif %})jinja";
}

const char* const llama_turn_part = R"jinja({%- macro begin(role) %}
{{- "<|start_header_id|>" ~ role ~ "<|end_header_id|>\n\n" }}
{%- endmacro %}
)jinja";

std::string llama3_source() {
  return std::string(llama_turn_part) + R"jinja({{- bos_token }}
{%- for message in messages %}
  {{- begin(message.role) ~ message.content | trim ~ "<|eot_id|>" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ begin("assistant") }}{% endif %})jinja";
}

std::string llama31_source() {
  return std::string(llama_turn_part) + R"jinja({{- bos_token }}
{%- set state = namespace(shown=false) %}
{%- set has_system = messages and messages[0].role == "system" %}
{{- begin("system") }}
{%- if tools %}{{ "Environment: ipython\n" }}{% endif %}
{{- "Cutting Knowledge Date: December 2023\nToday Date: " ~ date_string | default("26 Jul 2024") }}
{{- "\n\n" ~ (messages[0].content | trim if has_system else "") ~ "<|eot_id|>" }}
{%- set turns = messages[1:] if has_system else messages %}
{%- for message in turns %}
  {%- if message.tool_calls %}
    {%- if message.tool_calls | length != 1 %}
      {{- raise_exception("This model only supports single tool-calls at once!") }}
    {%- endif %}
    {%- set call = message.tool_calls[0].function %}
    {{- begin("assistant") ~ '{"name": "' ~ call.name ~ '", "parameters": ' }}
    {{- call.arguments | tojson ~ "}<|eot_id|>" }}
  {%- elif message.role in ["tool", "ipython"] %}
    {{- begin("ipython") ~ message.content | tojson ~ "<|eot_id|>" }}
  {%- else %}
    {{- begin(message.role) }}
    {%- if tools and message.role == "user" and not state.shown %}
      {%- set state.shown = true %}
      {{-
        "Given the following functions, please respond with a JSON for a function call with its" }}
      {{- " proper arguments that best answers the given prompt.\n\nRespond in the format {" }}
      {{- '"name": function name, "parameters": dictionary of argument name and its value}.' }}
      {{- "Do not use variables.\n\n" }}
      {%- for tool in tools %}{{ tool | tojson(indent=4) ~ "\n\n" }}{% endfor %}
    {%- endif %}
    {{- message.content | trim ~ "<|eot_id|>" }}
  {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ begin("assistant") }}{% endif %})jinja";
}

const char* const mistral_ids_part = R"jinja({%- macro checked(id) %}
{%- if id is not string or id | length != 9 %}
  {{- raise_exception("Tool call IDs should be alphanumeric strings with length 9!") }}
{%- endif %}
{{- id }}
{%- endmacro %}
{%- set last = namespace(user=-1) %}
{%- for message in messages %}
  {%- if message.role == "user" %}{% set last.user = loop.index0 %}{% endif %}
{%- endfor %}
)jinja";

std::string mistral_nemo_source() {
  return std::string(mistral_ids_part) + R"jinja({{- bos_token }}
{%- set has_system = messages and messages[0].role == "system" %}
{%- for message in messages %}
  {%- if message.role == "user" %}
    {%- set is_last = loop.index0 == last.user %}
    {%- if tools and is_last %}
      {{- "[AVAILABLE_TOOLS]" ~ tools | tojson ~ "[/AVAILABLE_TOOLS]" }}
    {%- endif %}
    {{- "[INST]" ~ (messages[0].content ~ "\n\n" if has_system and loop.last else "") }}
    {{- message.content ~ "[/INST]" }}
  {%- elif message.tool_calls %}
    {{- "[TOOL_CALLS][" }}
    {%- for call in message.tool_calls %}
      {{-
        '{"name": "' ~ call.function.name ~ '", "arguments": ' ~ call.function.arguments | tojson }}
      {{- ', "id": "' ~ checked(call.id) ~ '"}' ~ ("" if loop.last else ", ") }}
    {%- endfor %}
    {{- "]" ~ eos_token }}
  {%- elif message.role == "tool" %}
    {{- '[TOOL_RESULTS]{"content": ' ~ message.content ~ ', "call_id": "' }}
    {{- checked(message.tool_call_id) ~ '"}[/TOOL_RESULTS]' }}
  {%- elif message.role == "assistant" %}
    {{- message.content ~ eos_token }}
  {%- endif %}
{%- endfor %})jinja";
}

std::string mistral_small_source() {
  return std::string(mistral_ids_part) + R"jinja({{- bos_token }}
{%- for message in messages %}
  {%- if message.role == "system" %}
    {{- "[SYSTEM_PROMPT]" ~ message.content ~ "[/SYSTEM_PROMPT]" }}
  {%- elif message.role == "user" %}
    {%- if tools and loop.index0 == last.user %}
      {{- "[AVAILABLE_TOOLS]" ~ tools | tojson ~ "[/AVAILABLE_TOOLS]" }}
    {%- endif %}
    {{- "[INST]" ~ message.content ~ "[/INST]" }}
  {%- elif message.role == "assistant" %}
    {{- message.content or "" }}
    {%- for call in message.tool_calls or [] %}
      {{- "[TOOL_CALLS]" ~ call.function.name ~ "[CALL_ID]" ~ checked(call.id) ~ "[ARGS]" }}
      {{- call.function.arguments | tojson }}
    {%- endfor %}
    {{- eos_token }}
  {%- elif message.role == "tool" %}
    {{- "[TOOL_RESULTS]" ~ checked(message.tool_call_id) ~ "[TOOL_CONTENT]" ~ message.content }}
    {{- "[/TOOL_RESULTS]" }}
  {%- endif %}
{%- endfor %})jinja";
}

std::string olmoe_source() {
  return R"jinja({{- bos_token or eos_token }}
{%- for message in messages %}
  {{- "<|" ~ message.role ~ "|>\n" ~ message.content }}
  {{- (eos_token if message.role == "assistant" else "") ~ "\n" }}
{%- endfor %}
{%- if add_generation_prompt %}{{ "<|assistant|>\n" }}{% endif %})jinja";
}

}  // namespace millrace
