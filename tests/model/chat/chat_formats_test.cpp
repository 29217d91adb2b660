// The exact strings of each family: a plain conversation, reasoning, a running tool call.
#include <catch2/catch.hpp>
#include <string>

#include "tests/model/chat/conversation.h"

namespace millrace {
namespace {

using namespace testing;  // NOLINT: test code

constexpr const char* tool_json =
    R"({"type": "function", "function": {"name": "get_weather", "description": "Get weather",)"
    R"( "parameters": {"type": "object", "properties": {"city": {"type": "string",)"
    R"( "description": "City name"}}, "required": ["city"]}}})";
constexpr const char* function_json =
    R"({"name": "get_weather", "description": "Get weather",)"
    R"( "parameters": {"type": "object", "properties": {"city": {"type": "string",)"
    R"( "description": "City name"}}, "required": ["city"]}})";

ChatRequest thinking(ChatRequest request, bool on) {
  request.enable_thinking = on;
  return request;
}

ChatRequest only_user() {
  ChatRequest request = four_turns();
  request.messages = {message("user", "U1")};
  return request;
}

bool contains(const std::string& text, const std::string& part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos;
}

TEST_CASE("chat format of Qwen2.5: ChatML with a default system message") {
  const ChatTemplate chat = format_of("Qwen2.5");
  CHECK(rendered(chat, four_turns()) ==
        "<|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n"
        "<|im_start|>assistant\nA1<|im_end|>\n<|im_start|>user\nU2<|im_end|>\n"
        "<|im_start|>assistant\n");
  CHECK(rendered(chat, only_user()) ==
        "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful "
        "assistant.<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\n");
  ChatRequest call = running_call();
  call.messages.insert(call.messages.begin(), message("system", "SYS"));
  CHECK(rendered(chat, call) ==
        std::string("<|im_start|>system\nSYS\n\n# Tools\n\nYou may call one or more functions to "
                    "assist with the user query.\n\nYou are provided with function signatures "
                    "within <tools></tools> XML tags:\n<tools>\n") +
            tool_json +
            "\n</tools>\n\nFor each function call, return a json object with function name and "
            "arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n"
            "{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
            "<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\n<tool_call>\n"
            "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>"
            "<|im_end|>\n<|im_start|>user\n<tool_response>\n{\"t\":20}\n</tool_response>"
            "<|im_end|>\n<|im_start|>assistant\n");
}

TEST_CASE("chat format of Qwen3: reasoning stays in the running turn only") {
  const ChatTemplate chat = format_of("Qwen3");
  CHECK(rendered(chat, only_user()) == "<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\n");
  CHECK(rendered(chat, thinking(only_user(), true)) == rendered(chat, only_user()));
  CHECK(rendered(chat, thinking(only_user(), false)) ==
        "<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  CHECK(contains(rendered(chat, running_call("R1")),
                 "<|im_start|>assistant\n<think>\nR1\n</think>\n\n<tool_call>\n{\"name\": "
                 "\"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call><|im_end|>\n"
                 "<|im_start|>user\n<tool_response>\n{\"t\":20}\n</tool_response><|im_end|>\n"));
  ChatRequest old = four_turns();
  old.messages[2].content = "<think>\nR1\n</think>\n\nA1";
  CHECK(rendered(chat, old) == rendered(chat, four_turns()));
}

TEST_CASE("chat format of Qwen3 Thinking: as Qwen3, but the prompt opens the reasoning") {
  const ChatTemplate chat = format_of("Qwen3 Thinking");
  const std::string opened = "<|im_start|>assistant\n<think>\n";
  for (const ChatRequest& request :
       {only_user(), four_turns(), running_call("R1"), thinking(only_user(), false)}) {
    const std::string plain = rendered(format_of("Qwen3"), thinking(request, true));
    CHECK(rendered(chat, request) == plain + "<think>\n");
    CHECK(rendered(chat, request).ends_with(opened));
    const auto made = chat.render(request);
    REQUIRE(made.has_value());
    CHECK(made->in_reasoning);
  }
}

TEST_CASE("chat format of Qwen3.5: the prompt opens the reasoning; calls as XML") {
  const ChatTemplate chat = format_of("Qwen3.5");
  CHECK(rendered(chat, only_user()) ==
        "<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\n<think>\n");
  CHECK(rendered(chat, thinking(only_user(), false)) ==
        "<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  ChatRequest call = running_call("R1");
  call.messages.insert(call.messages.begin(), message("system", "SYS"));
  const std::string shown = rendered(chat, call);
  CHECK(contains(shown,
                 "<think>\nR1\n</think>\n\n<tool_call>\n<function=get_weather>\n"
                 "<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>"
                 "<|im_end|>\n<|im_start|>user\n<tool_response>\n{\"t\":20}\n"
                 "</tool_response><|im_end|>\n"));
  CHECK(contains(shown, "</IMPORTANT>\n\nSYS<|im_end|>\n"));  // tools first, then the system text
}

TEST_CASE("chat format of Llama 3 and 3.1: headers, date lines, results encoded again") {
  CHECK(rendered(format_of("Llama 3"), only_user()) ==
        "<BOS><|start_header_id|>user<|end_header_id|>\n\nU1<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
  const ChatTemplate chat = format_of("Llama 3.1");
  CHECK(rendered(chat, four_turns()) ==
        "<BOS><|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
        "Today Date: 26 Jul 2024\n\nSYS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nU1"
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nA1<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nU2<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n");
  CHECK(contains(rendered(chat, only_user()), "Today Date: 26 Jul 2024\n\n<|eot_id|>"));
  ChatRequest dated = only_user();
  dated.variables = Json::object();
  dated.variables.set("date_string", "1 Jan 2025");
  CHECK(contains(rendered(chat, dated), "Today Date: 1 Jan 2025\n"));
  const std::string call = rendered(chat, running_call());
  CHECK(contains(call, "\n\nEnvironment: ipython\nCutting Knowledge Date"));
  CHECK(contains(call,
                 "{\"name\": function name, \"parameters\": dictionary of argument name and "
                 "its value}"));
  CHECK(contains(call,
                 "{\n    \"type\": \"function\",\n    \"function\": {\n        \"name\": "
                 "\"get_weather\","));
  CHECK(contains(call,
                 "<|start_header_id|>assistant<|end_header_id|>\n\n{\"name\": "
                 "\"get_weather\", \"parameters\": {\"city\": \"Paris\"}}<|eot_id|>"
                 "<|start_header_id|>ipython<|end_header_id|>\n\n\"{\\\"t\\\":20}\""
                 "<|eot_id|>"));
}

TEST_CASE("chat format of Mistral: the system text before the last message, or a turn of its own") {
  const ChatTemplate nemo = format_of("Mistral Nemo");
  CHECK(rendered(nemo, four_turns()) == "<BOS>[INST]U1[/INST]A1<EOS>[INST]SYS\n\nU2[/INST]");
  CHECK(rendered(nemo, running_call()) ==
        std::string("<BOS>[AVAILABLE_TOOLS][") + tool_json +
            "][/AVAILABLE_TOOLS][INST]U1[/INST][TOOL_CALLS][{\"name\": \"get_weather\", "
            "\"arguments\": {\"city\": \"Paris\"}, \"id\": \"abc123def\"}]<EOS>[TOOL_RESULTS]"
            "{\"content\": {\"t\":20}, \"call_id\": \"abc123def\"}[/TOOL_RESULTS]");
  const ChatTemplate small = format_of("Mistral Small");
  CHECK(rendered(small, four_turns()) ==
        "<BOS>[SYSTEM_PROMPT]SYS[/SYSTEM_PROMPT][INST]U1[/INST]A1<EOS>[INST]U2[/INST]");
  CHECK(contains(rendered(small, running_call()),
                 "[INST]U1[/INST][TOOL_CALLS]get_weather[CALL_ID]abc123def[ARGS]{\"city\": "
                 "\"Paris\"}<EOS>[TOOL_RESULTS]abc123def[TOOL_CONTENT]{\"t\":20}[/TOOL_RESULTS]"));
  ChatRequest bad_id = running_call();
  bad_id.messages[1].tool_calls[0].id = "1";
  const auto refused = small.render(bad_id);
  REQUIRE(!refused.has_value());
  CHECK(refused.error().code == ErrorCode::usage);
}

TEST_CASE("chat format of DeepSeek: V3, R1, V3.1") {
  CHECK(rendered(format_of("DeepSeek V3"), four_turns()) ==
        "<BOS>SYS<｜User｜>U1<｜Assistant｜>A1<EOS><｜User｜>U2<｜Assistant｜>");
  const ChatTemplate r1 = format_of("DeepSeek R1");
  CHECK(rendered(r1, four_turns()) ==
        "<BOS>SYS<｜User｜>U1<｜Assistant｜>A1<EOS><｜User｜>U2<｜Assistant｜><think>\n");
  ChatRequest call = running_call();
  call.tools = Json();
  CHECK(contains(rendered(r1, call),
                 "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
                 "{\"city\": \"Paris\"}\n```<｜tool▁call▁end｜>"));

  const ChatTemplate v31 = format_of("DeepSeek V3.1");
  CHECK(rendered(v31, thinking(four_turns(), false)) ==
        "<BOS>SYS<｜User｜>U1<｜Assistant｜><think></think>A1<EOS><｜User｜>U2<｜Assistant｜>"
        "<think></think>");
  CHECK(rendered(v31, thinking(four_turns(), true)) ==
        "<BOS>SYS<｜User｜>U1<｜Assistant｜><think></"
        "think>A1<EOS><｜User｜>U2<｜Assistant｜><think>");
  CHECK(contains(rendered(v31, running_call()),
                 "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
                 "{\"city\": \"Paris\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜><EOS>"
                 "<｜tool▁output▁begin｜>{\"t\":20}<｜tool▁output▁end｜>"));
}

TEST_CASE("chat format of DeepSeek V4: modes of thinking, tools in its own markup") {
  const ChatTemplate chat = format_of("DeepSeek V4");
  CHECK(rendered(chat, four_turns()) ==
        "<BOS>SYS<｜User｜>U1<｜Assistant｜></think>A1<EOS><｜User｜>U2<｜Assistant｜></think>");
  CHECK(rendered(chat, thinking(four_turns(), true)) ==
        "<BOS>SYS<｜User｜>U1<｜Assistant｜></think>A1<EOS><｜User｜>U2<｜Assistant｜><think>");
  ChatRequest call = running_call();
  call.messages.insert(call.messages.begin(), message("system", "SYS"));
  CHECK(rendered(chat, call) ==
        std::string("<BOS>SYS\n\n## Tools\n\nYou have access to a set of tools to help answer the "
                    "user's question. You can invoke tools by writing a \"<｜DSML｜tool_calls>\" "
                    "block like the following:\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke "
                    "name=\"$TOOL_NAME\">\n<｜DSML｜parameter name=\"$PARAMETER_NAME\" "
                    "string=\"true|false\">$PARAMETER_VALUE</｜DSML｜parameter>\n...\n"
                    "</｜DSML｜invoke>\n<｜DSML｜invoke name=\"$TOOL_NAME2\">\n...\n"
                    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>\n\nString parameters should be "
                    "specified as is and set `string=\"true\"`. For all other types (numbers, "
                    "booleans, arrays, objects), pass the value in JSON format and set "
                    "`string=\"false\"`.\n\nIf thinking_mode is enabled (triggered by <think>), "
                    "you MUST output your complete reasoning inside <think>...</think> BEFORE any "
                    "tool calls or final response.\n\nOtherwise, output directly after </think> "
                    "with tool calls or final response.\n\n### Available Tool Schemas\n\n") +
            function_json +
            "\n\nYou MUST strictly follow the above defined tool name and parameter schemas to "
            "invoke tool calls.\n<｜User｜>U1<｜Assistant｜></think>\n\n<｜DSML｜tool_calls>\n"
            "<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" "
            "string=\"true\">Paris</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
            "<EOS><｜User｜><tool_result>{\"t\":20}</tool_result><｜Assistant｜></think>");
  CHECK(contains(rendered(chat, thinking(running_call("R1"), true)),
                 "<｜Assistant｜><think>R1</think>\n\n<｜DSML｜tool_calls>"));
}

TEST_CASE("chat format of Kimi-K2: ids of calls are counted by the format") {
  const ChatTemplate chat = format_of("Kimi-K2");
  CHECK(rendered(chat, four_turns()) ==
        "<|im_system|>system<|im_middle|>SYS<|im_end|><|im_user|>user<|im_middle|>U1<|im_end|>"
        "<|im_assistant|>assistant<|im_middle|>A1<|im_end|><|im_user|>user<|im_middle|>U2"
        "<|im_end|><|im_assistant|>assistant<|im_middle|>");
  const std::string call = rendered(chat, running_call());
  CHECK(contains(call, std::string("<|im_system|>tool_declare<|im_middle|>[") + tool_json +
                           "]<|im_end|><|im_system|>system<|im_middle|>You are Kimi, an AI "
                           "assistant created by Moonshot AI.<|im_end|>"));
  CHECK(contains(call,
                 "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
                 "<|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|>"
                 "<|tool_calls_section_end|><|im_end|><|im_system|>get_weather<|im_middle|>"
                 "## Return of functions.get_weather:0\n{\"t\":20}<|im_end|>"));
}

TEST_CASE("chat format of gpt-oss: channels, and tools as types") {
  const ChatTemplate chat = format_of("gpt-oss");
  const std::string system =
      "<|start|>system<|message|>You are ChatGPT, a large language model trained by OpenAI.\n"
      "Knowledge cutoff: 2024-06\nCurrent date: 2026-08-30\n\nReasoning: medium\n\n# Valid "
      "channels: analysis, commentary, final. Channel must be included for every message.";
  CHECK(rendered(chat, four_turns()) ==
        system +
            "<|end|><|start|>developer<|message|># Instructions\n\nSYS\n\n<|end|>"
            "<|start|>user<|message|>U1<|end|><|start|>assistant<|channel|>final<|message|>A1"
            "<|end|><|start|>user<|message|>U2<|end|><|start|>assistant");
  ChatRequest call = running_call("R1");
  call.messages.insert(call.messages.begin(), message("system", "SYS"));
  CHECK(rendered(chat, call) ==
        system +
            "\nCalls to these tools must go to the commentary channel: 'functions'.<|end|>"
            "<|start|>developer<|message|># Instructions\n\nSYS\n\n# Tools\n\n## functions\n\n"
            "namespace functions {\n\n// Get weather\ntype get_weather = (_: {\n// City name\n"
            "city: string,\n}) => any;\n\n} // namespace functions<|end|><|start|>user"
            "<|message|>U1<|end|><|start|>assistant<|channel|>analysis<|message|>R1<|end|>"
            "<|start|>assistant to=functions.get_weather<|channel|>commentary json<|message|>"
            "{\"city\": \"Paris\"}<|call|><|start|>functions.get_weather to=assistant"
            "<|channel|>commentary<|message|>\"{\\\"t\\\":20}\"<|end|><|start|>assistant");
  ChatRequest high = four_turns();
  high.reasoning_effort = "high";
  CHECK(contains(rendered(chat, high), "\n\nReasoning: high\n\n"));
}

TEST_CASE("chat format of gpt-oss: optional, listed and nested parameters, and none") {
  ChatRequest request = only_user();
  auto tools = Json::parse(
      R"([{"type": "function", "function": {"name": "f", "description": "F", "parameters":)"
      R"( {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}},)"
      R"( "e": {"type": "string", "enum": ["x", "y"]}, "n": {"type": "integer"},)"
      R"( "o": {"type": "object", "properties": {"i": {"type": "boolean"}}}}, "required":)"
      R"( ["n"]}}}, {"type": "function", "function": {"name": "g", "description": "G",)"
      R"( "parameters": {"type": "object", "properties": {}}}}])");
  REQUIRE(tools.has_value());
  request.tools = *tools;
  CHECK(contains(rendered(format_of("gpt-oss"), request),
                 "// F\ntype f = (_: {\na?: string[],\ne?: \"x\" | \"y\",\nn: number,\no?: {\n"
                 "i?: boolean,\n},\n}) => any;\n\n// G\ntype g = () => any;\n\n"));
}

TEST_CASE("chat format of GLM: with line ends, or without") {
  const ChatTemplate glm45 = format_of("GLM-4.5");
  CHECK(rendered(glm45, four_turns()) ==
        "[gMASK]<sop><|system|>\nSYS<|user|>\nU1<|assistant|>\n<think></think>\nA1<|user|>\nU2"
        "<|assistant|>");
  CHECK(rendered(glm45, thinking(only_user(), false)) ==
        "[gMASK]<sop><|user|>\nU1/nothink<|assistant|>\n<think></think>");
  CHECK(contains(rendered(glm45, running_call()),
                 "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
                 "</tool_call><|observation|>\n<tool_response>\n{\"t\":20}\n</tool_response>"
                 "<|assistant|>"));
  CHECK(contains(rendered(glm45, running_call()),
                 "<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>"
                 "{arg-value-1}</arg_value>\n"));
  const ChatTemplate glm47 = format_of("GLM-4.7");
  CHECK(rendered(glm47, four_turns()) ==
        "[gMASK]<sop><|system|>SYS<|user|>U1<|assistant|></think>A1<|user|>U2<|assistant|><think>");
  CHECK(rendered(glm47, thinking(only_user(), false)) ==
        "[gMASK]<sop><|user|>U1<|assistant|></think>");
  CHECK(contains(rendered(glm47, running_call()),
                 "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value>"
                 "</tool_call><|observation|><tool_response>{\"t\":20}</tool_response>"));
}

TEST_CASE("chat format of MiniMax-M2") {
  const ChatTemplate chat = format_of("MiniMax-M2");
  CHECK(rendered(chat, four_turns()) ==
        "]~!b[]~b]system\nSYS[e~[\n]~b]user\nU1[e~[\n]~b]ai\nA1[e~[\n]~b]user\nU2[e~[\n]~b]ai\n"
        "<think>\n");
  const std::string call = rendered(chat, running_call("R1"));
  CHECK(contains(call, std::string("\n\n# Tools\nYou may call one or more tools to assist with the "
                                   "user query.\nHere are the tools available in JSONSchema "
                                   "format:\n\n<tools>\n<tool>") +
                           function_json +
                           "</tool>\n</tools>\n\nWhen making tool calls, use XML format to invoke "
                           "tools and pass parameters:\n\n<minimax:tool_call>\n<invoke "
                           "name=\"tool-name-1\">\n<parameter name=\"param-key-1\">param-value-1"
                           "</parameter>\n<parameter name=\"param-key-2\">param-value-2"
                           "</parameter>\n...\n</invoke>\n</minimax:tool_call>[e~[\n"));
  CHECK(contains(call,
                 "]~b]ai\n<think>\nR1\n</think>\n\n\n<minimax:tool_call>\n<invoke "
                 "name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n"
                 "</invoke>\n</minimax:tool_call>[e~[\n]~b]tool\n<response>{\"t\":20}"
                 "</response>[e~[\n"));
}

TEST_CASE("chat format of OLMoE") {
  ChatRequest request = four_turns();
  request.messages.erase(request.messages.begin());
  CHECK(rendered(format_of("OLMoE", "", "<|endoftext|>"), request) ==
        "<|endoftext|><|user|>\nU1\n<|assistant|>\nA1<|endoftext|>\n<|user|>\nU2\n"
        "<|assistant|>\n");
}

}  // namespace
}  // namespace millrace
