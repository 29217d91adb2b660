// Reasoning, answer and calls of each family, however the text is cut.
#include "model/chat/output_parser.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "model/chat/fallback_templates.h"
#include "tests/model/chat/conversation.h"

namespace millrace {
namespace {

using namespace testing;  // NOLINT: test code

struct Parsed {
  std::string reasoning, content, calls;
};

std::string shown(const ToolCall& call) {
  return (call.id.empty() ? "" : call.id + "=") + call.name + call.arguments.dump();
}

void add(Parsed& all, OutputDelta delta) {
  all.reasoning += delta.reasoning;
  all.content += delta.content;
  for (const ToolCall& call : delta.calls) all.calls += shown(call) + ";";
}

OutputFormat format_named(std::string_view family) {
  const FallbackTemplate* found = find_fallback_template(family);
  REQUIRE(found != nullptr);
  return output_format(found->source());
}

// In pieces of 1, 2, 3, 7 bytes and at once: always the same.
Parsed parsed(const OutputFormat& format, const std::string& text, bool in_reasoning = false) {
  Parsed first;
  for (const std::size_t size :
       {text.size() + 1, std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}}) {
    OutputParser parser(format, in_reasoning, weather_tools());
    Parsed all;
    for (std::size_t at = 0; at < text.size(); at += size)
      add(all, parser.push(text.substr(at, size)));
    add(all, parser.finish());
    if (size > text.size()) {
      first = all;
    } else {
      CHECK(all.reasoning == first.reasoning);
      CHECK(all.content == first.content);
      CHECK(all.calls == first.calls);
    }
  }
  return first;
}

void check(const Parsed& all, const std::string& reasoning, const std::string& content,
           const std::string& calls = "") {
  CHECK(all.reasoning == reasoning);
  CHECK(all.content == content);
  CHECK(all.calls == calls);
}

constexpr const char* paris = "get_weather{\"city\":\"Paris\"};";

TEST_CASE("model output: reasoning between tags, before the answer, or none") {
  const OutputFormat qwen = format_named("Qwen3");
  check(parsed(qwen, "<think>\nR1\n</think>\n\nA1"), "R1", "A1");
  check(parsed(qwen, "\n<think>R1</think>\nA1"), "R1", "A1");
  check(parsed(qwen, "<think>\n\n</think>\n\nA1"), "", "A1");
  check(parsed(qwen, "A1 <think> no"), "", "A1 <think> no");
  check(parsed(qwen, "A <b> c\n"), "", "A <b> c\n");
  check(parsed(qwen, "  A\n\nB  "), "", "  A\n\nB  ");
  check(parsed(qwen, "R1\n</think>\n\nA1", true), "R1", "A1");
  check(parsed(qwen, "R1 goes on", true), "R1 goes on", "");
  check(parsed(qwen, "<think>R1 </thi"), "R1 </thi", "");
  check(parsed(qwen, ""), "", "");
}

TEST_CASE("model output: calls of each family") {
  check(parsed(format_named("Qwen3"),
               "<think>\nR1\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": "
               "{\"city\": \"Paris\"}}\n</tool_call>"),
        "R1", "", paris);
  check(parsed(format_named("Qwen3"),
               "Text.\n<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>\n"
               "<tool_call>\n{\"name\": \"b\", \"arguments\": {\"x\": [1]}}\n</tool_call>"),
        "", "Text.", "a{};b{\"x\":[1]};");
  check(parsed(format_named("Qwen3.5"),
               "R1\n</think>\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n"
               "</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
               true),
        "R1", "", "get_weather{\"city\":\"Paris\",\"days\":3};");
  check(parsed(format_named("GLM-4.5"),
               "\n<think>R1</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>"
               "Paris</arg_value>\n</tool_call>"),
        "R1", "", paris);
  check(parsed(format_named("GLM-4.7"),
               "R1</think><tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris"
               "</arg_value></tool_call>",
               true),
        "R1", "", paris);
  check(parsed(format_named("MiniMax-M2"),
               "R1\n</think>\n\nSee:\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n"
               "<parameter name=\"city\">Paris</parameter>\n</invoke>\n<invoke name=\"b\">\n"
               "</invoke>\n</minimax:tool_call>",
               true),
        "R1", "See:", std::string(paris) + "b{};");
  check(parsed(format_named("DeepSeek V4"),
               "R1</think>A\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n"
               "<｜DSML｜parameter name=\"city\" string=\"true\">12</｜DSML｜parameter>\n"
               "<｜DSML｜parameter name=\"days\" string=\"false\">12</｜DSML｜parameter>\n"
               "</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
               true),
        "R1", "A", "get_weather{\"city\":\"12\",\"days\":12};");
  check(parsed(format_named("DeepSeek V3.1"),
               "R1</think>A<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
               "{\"city\": \"Paris\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
               true),
        "R1", "A", paris);
  check(parsed(format_named("DeepSeek R1"),
               "R1</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>"
               "get_weather\n```json\n{\"city\": \"Paris\"}\n```<｜tool▁call▁end｜>"
               "<｜tool▁calls▁end｜>",
               true),
        "R1", "", paris);
  check(parsed(format_named("Kimi-K2"),
               "A<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
               "<|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|>"
               "<|tool_calls_section_end|>"),
        "", "A", "functions.get_weather:0=" + std::string(paris));
  check(parsed(format_named("Mistral Nemo"),
               "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}, "
               "\"id\": \"abc123def\"}]"),
        "", "", "abc123def=" + std::string(paris));
  check(parsed(format_named("Mistral Small"),
               "A[TOOL_CALLS]get_weather[CALL_ID]abc123def[ARGS]{\"city\": \"Paris\"}"
               "[TOOL_CALLS]b[ARGS]{}"),
        "", "A", "abc123def=" + std::string(paris) + "b{};");
  check(parsed(format_named("Llama 3.1"),
               "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}"),
        "", "", paris);
}

TEST_CASE("model output: what looks like a call and is none stays text") {
  const OutputFormat qwen = format_named("Qwen3");
  for (const std::string text :
       {"a <tool_call>\n{\"name\": \"f\"}\n</tool_call> b", "<tool_call>{\"name\": \"f\", \"argu",
        "x\n<tool_call>not JSON</tool_call>", "<tool_call></tool_call>", "a<tool_cal"}) {
    INFO(text);
    check(parsed(qwen, text), "", text);
  }
  const OutputFormat llama = format_named("Llama 3.1");
  check(parsed(llama, "{\"answer\": 1}"), "", "{\"answer\": 1}");
  check(parsed(llama, "Hi {there}"), "", "Hi {there}");
  OutputParser without_tools(llama, false, Json());
  CHECK(without_tools.push("{\"name\"").content == "{\"name\"");
  for (const char* family : {"Qwen3.5", "GLM-4.7", "MiniMax-M2", "DeepSeek V4", "DeepSeek V3.1",
                             "Kimi-K2", "Mistral Small"}) {
    const OutputFormat format = format_named(family);
    for (const std::string inside : {"", "x y", "<", "<function=", "<function=f>", "[ARGS]", "[1]",
                                     "{}", "<invoke name=\"\">", "<arg_key>"}) {
      const std::string text = "a" + format.calls_begin + inside + format.calls_end;
      INFO(text);
      check(parsed(format, text), "", text);
    }
  }
}

TEST_CASE("model output: text is handed on as soon as it cannot be a mark any more") {
  OutputParser parser(format_named("Qwen3"), false, Json());
  CHECK(parser.push("A").content == "A");
  CHECK(parser.push(" <").content == "");
  CHECK(parser.push("b").content == " <b");
  CHECK(parser.push("<tool_").content == "");
  CHECK(parser.push("box>").content == "<tool_box>");
  CHECK(parser.finish().content == "");
}

// Control tokens are pieces of their own.
Parsed harmony(const std::vector<std::string>& pieces) {
  OutputParser parser(format_named("gpt-oss"), false, weather_tools());
  Parsed all;
  for (const std::string& piece : pieces) add(all, parser.push(piece, piece.starts_with("<|")));
  add(all, parser.finish());
  return all;
}

TEST_CASE("model output: the channels of gpt-oss") {
  check(harmony({"<|channel|>", "analysis", "<|message|>", "R", "1", "<|end|>", "<|start|>",
                 "assistant", "<|channel|>", "final", "<|message|>", "A", "1", "<|return|>"}),
        "R1", "A1");
  check(harmony({"<|channel|>", "commentary to=functions.get_weather ", "<|constrain|>", "json",
                 "<|message|>", "{\"city\": ", "\"Paris\"}", "<|call|>"}),
        "", "", paris);
  check(harmony({" to=functions.get_weather", "<|channel|>", "commentary json", "<|message|>",
                 "{\"city\": \"Paris\"}"}),
        "", "", paris);
  check(harmony({"<|channel|>", "commentary", "<|message|>", "I will look.", "<|end|>", "<|start|>",
                 "assistant"}),
        "", "I will look.");
  check(harmony({"<|channel|>", "analysis", "<|message|>", "R1"}), "R1", "");
  check(harmony({"<|channel|>", "commentary to=functions.f", "<|message|>", "not JSON"}), "", "",
        "f\"not JSON\";");
  // A text that only looks like a mark is text.
  OutputParser parser(format_named("gpt-oss"), false, Json());
  parser.push("<|channel|>", true);
  parser.push("final");
  parser.push("<|message|>", true);
  CHECK(parser.push("a <|end|> b").content == "a <|end|> b");
}

TEST_CASE("model output: control tokens that are no marks write nothing") {
  OutputParser parser(format_named("Kimi-K2"), false, Json());
  Parsed all;
  for (const std::string piece : {"A", "<|im_end|>", "B"})
    add(all, parser.push(piece, piece.starts_with("<|")));
  add(all, parser.finish());
  check(all, "", "AB");
}

}  // namespace
}  // namespace millrace
