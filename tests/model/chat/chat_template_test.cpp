// Templates as files bring them: variants, what they take, and files without one.
#include <catch2/catch.hpp>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/format/open.h"
#include "tests/model/chat/conversation.h"

namespace millrace {
namespace {

using namespace testing;  // NOLINT: test code

ChatTemplate chat_of(const std::string& source, const std::string& tool_use = {}) {
  ChatTemplate::Sources sources;
  sources.name = "m.gguf";
  sources.plain = source;
  sources.tool_use = tool_use;
  sources.bos = "<s>";
  sources.eos = "</s>";
  auto made = ChatTemplate::from_sources(sources);
  INFO((made ? std::string() : made.error().what));
  REQUIRE(made.has_value());
  return *std::move(made);
}

constexpr const char* loop_source =
    "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";

TEST_CASE("chat template: of the embedded model, as the file has it") {
  const auto checkpoint = open_checkpoint(MILLRACE_EMBEDDED_MODEL);
  REQUIRE(checkpoint.has_value());
  const auto chat = ChatTemplate::from_checkpoint(*checkpoint);
  REQUIRE(chat.has_value());
  CHECK(rendered(*chat, four_turns()) ==
        "<|im_start|>system\nSYS<|im_end|>\n<|im_start|>user\nU1<|im_end|>\n"
        "<|im_start|>assistant\nA1<|im_end|>\n<|im_start|>user\nU2<|im_end|>\n"
        "<|im_start|>assistant\n");
  CHECK(!chat->takes_tools());
}

TEST_CASE("chat template: tools with a template that has no place for them are refused") {
  const auto made = chat_of(loop_source).render(running_call());
  REQUIRE(!made.has_value());
  CHECK(made.error().code == ErrorCode::usage);
  CHECK(made.error().what == "m.gguf: the chat template has no place for tools");
}

TEST_CASE("chat template: the variant for tools is used when there are tools") {
  const ChatTemplate chat = chat_of(loop_source, "T{{ tools[0].function.name }}");
  CHECK(chat.takes_tools());
  CHECK(rendered(chat, running_call()) == "Tget_weather");
  ChatRequest without = running_call();
  without.tools = Json::array();
  CHECK(rendered(chat, without) == "user:U1;assistant:;tool:{\"t\":20};");
}

TEST_CASE("chat template: arguments go in as the template takes them") {
  const std::string head = "{% for m in messages %}{% for c in m.tool_calls or [] %}";
  const std::string tail = "{% endfor %}{{ m.content }}{% endfor %}{{ tools }}";
  const ChatTemplate by_json = chat_of(head + "{{ c.function.arguments | tojson }}" + tail);
  const ChatTemplate by_text = chat_of(head + "{{ 'A' + c.function.arguments }}" + tail);
  const ChatTemplate by_items = chat_of(
      head + "{% for k, v in c.function.arguments.items() %}{{ k }}={{ v }}{% endfor %}" + tail);
  ChatRequest objects = running_call();
  ChatRequest texts = objects;
  texts.messages[1].tool_calls[0].arguments = R"({"city": "Paris"})";
  for (const ChatRequest& request : {objects, texts}) {
    CHECK(rendered(by_json, request).find("{\"city\": \"Paris\"}") == 2);
    CHECK(rendered(by_text, request).find("A{\"city\": \"Paris\"}") == 2);
    CHECK(rendered(by_items, request).find("city=Paris") == 2);
  }
}

TEST_CASE("chat template: parts of text are joined, or kept where the template wants parts") {
  const auto parts =
      Json::parse(R"([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])");
  REQUIRE(parts.has_value());
  ChatRequest request;
  request.messages = {message("user", "")};
  request.messages[0].content = *parts;
  CHECK(rendered(chat_of(loop_source), request) == "user:ab;");
  const ChatTemplate wants_parts = chat_of(
      "{% for m in messages %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endfor %}");
  CHECK(rendered(wants_parts, request) == "[a][b]");
  request.messages[0].content = "c";
  CHECK(rendered(wants_parts, request) == "[c]");

  const auto image = Json::parse(R"([{"type": "image_url", "image_url": {}}])");
  REQUIRE(image.has_value());
  request.messages[0].content = *image;
  const auto refused = chat_of(loop_source).render(request);
  REQUIRE(!refused.has_value());
  CHECK(refused.error().code == ErrorCode::usage);
}

TEST_CASE("chat template: a prompt that ends in an opened <think> says so, a user's does not") {
  ChatRequest request;
  request.messages = {message("user", "U<think>")};
  CHECK(chat_of(loop_source + std::string("<think>\n")).render(request)->in_reasoning);
  CHECK(!chat_of(loop_source + std::string("<think></think>")).render(request)->in_reasoning);
  CHECK(
      !chat_of("{% for m in messages %}{{ m.content }}{% endfor %}").render(request)->in_reasoning);
}

TEST_CASE("chat template: errors name file, line, and what the template raised") {
  ChatTemplate::Sources sources;
  sources.name = "m.gguf";
  sources.plain = "a\n{% if %}";
  const auto malformed = ChatTemplate::from_sources(sources);
  REQUIRE(!malformed.has_value());
  CHECK(malformed.error().what ==
        "m.gguf: tokenizer.chat_template, line 2: expected an expression, found %}");
  const auto raised = chat_of("{{ raise_exception('no turns') }}").render(four_turns());
  REQUIRE(!raised.has_value());
  CHECK(raised.error().what ==
        "m.gguf: chat template, line 1: the template refuses the conversation: no turns");
  const auto endless = chat_of(
                           "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"
                           "{% endfor %}")
                           .render(four_turns());
  CHECK(!endless.has_value());
}

Checkpoint checkpoint_with(const std::unordered_map<std::string, MetaValue>& meta) {
  Checkpoint::Parts parts;
  parts.files = {"made-by-a-test.gguf"};
  parts.meta = meta;
  return Checkpoint(std::move(parts));
}

struct Family {
  const char* architecture;
  const char* name;
  std::vector<std::string> tokens;
  const char* shown;  // in the prompt of "U1"
};

Checkpoint without_template(const Family& family) {
  return checkpoint_with({{"general.architecture", std::string(family.architecture)},
                          {"general.name", std::string(family.name)},
                          {"tokenizer.ggml.model", std::string("gpt2")},
                          {"tokenizer.ggml.tokens", family.tokens}});
}

TEST_CASE("chat template: a file without one gets the format of the family it clearly is of") {
  const std::vector<std::string> chatml = {"<|im_start|>", "<|im_end|>"};
  const char* qwen3_end = "<|im_start|>user\nU1<|im_end|>\n<|im_start|>assistant\n";
  const char* thinking_end = "<|im_start|>assistant\n<think>\n";
  const std::vector<std::string> glm = {"[gMASK]", "<sop>", "<|observation|>"};
  const std::vector<std::string> deepseek = {"<｜User｜>", "<｜Assistant｜>", "<think>"};
  for (const Family& family : std::vector<Family>{
           {"qwen3moe", "Qwen3 30B A3B", chatml, qwen3_end},
           {"qwen3moe", "Qwen3-30B-A3B-Instruct-2507", chatml, qwen3_end},
           {"qwen3moe", "Qwen3 30B A3B Thinking 2507", chatml, thinking_end},
           {"qwen3next", "qwen3-next-80b-a3b-thinking", chatml, thinking_end},
           {"qwen2", "Qwen2.5 7B Instruct", chatml, "You are Qwen, created by Alibaba Cloud"},
           {"qwen35moe", "", chatml, "<|im_start|>assistant\n<think>\n"},
           {"glm4moe", "GLM-4.6", glm, "[gMASK]<sop><|user|>\nU1<|assistant|>"},
           {"glm4moe", "GLM 4.7", glm, "[gMASK]<sop><|user|>U1<|assistant|><think>"},
           {"deepseek4", "", deepseek, "<｜User｜>U1<｜Assistant｜></think>"},
           {"deepseek2", "DeepSeek-R1", deepseek, "<｜User｜>U1<｜Assistant｜><think>\n"},
           {"deepseek2", "", {"<｜User｜>", "<｜Assistant｜>"}, "<｜User｜>U1<｜Assistant｜>"},
           {"deepseek2", "", {"<|im_system|>", "<|im_middle|>", "<|im_end|>"}, "You are Kimi"},
           {"llama", "", {"<|start_header_id|>", "<|eot_id|>"}, "<|start_header_id|>user"},
           {"llama", "", {"[INST]", "[/INST]", "[TOOL_CALLS]"}, "[INST]U1[/INST]"},
           {"minimax-m2", "", {"]~b]", "[e~["}, "]~b]user\nU1[e~[\n"},
           {"olmoe", "", {"a"}, "<|user|>\nU1\n<|assistant|>\n"}}) {
    const auto chat = ChatTemplate::from_checkpoint(without_template(family));
    INFO(family.architecture << " " << family.name);
    INFO((chat ? std::string() : chat.error().what));
    REQUIRE(chat.has_value());
    ChatRequest request;
    request.messages = {message("user", "U1")};
    const std::string shown = rendered(*chat, request);
    INFO(shown);
    const std::string wanted = family.shown;
    CHECK(shown.find(wanted) != std::string::npos);
    if (wanted.ends_with("assistant\n")) CHECK(shown.ends_with(wanted));
  }
}

TEST_CASE("chat template: the file's name counts as the model's does") {
  Checkpoint::Parts parts;
  parts.files = {"Qwen3-/Qwen3-235B-A22B-Thinking-2507-Q4_K_M.gguf"};
  parts.meta = {{"general.architecture", std::string("qwen3moe")},
                {"general.name", std::string("Model")},
                {"tokenizer.ggml.tokens", std::vector<std::string>{"<|im_start|>", "<|im_end|>"}}};
  const auto chat = ChatTemplate::from_checkpoint(Checkpoint(parts));
  REQUIRE(chat.has_value());
  ChatRequest request;
  request.messages = {message("user", "U1")};
  CHECK(rendered(*chat, request).ends_with("<|im_start|>assistant\n<think>\n"));
  parts.files = {"Qwen3-30B/model.gguf"};
  CHECK_FALSE(ChatTemplate::from_checkpoint(Checkpoint(parts)).has_value());
}

TEST_CASE("chat template: a file without one and of no clear family is refused") {
  const std::vector<std::string> chatml = {"<|im_start|>", "<|im_end|>"};
  for (const Family& family :
       std::vector<Family>{{"llama", "", {"<s>", "</s>"}, ""},
                           {"deepseek2", "", {"<｜User｜>", "<｜Assistant｜>", "<think>"}, ""},
                           {"glm4moe", "", {"[gMASK]", "<sop>", "<|observation|>"}, ""},
                           {"qwen3moe", "", chatml, ""},
                           {"qwen3moe", "A fine-tune", chatml, ""},
                           {"qwen3moe", "Qwen3 Coder 30B A3B Instruct", chatml, ""},
                           {"qwen3", "Qwen3Guard-Gen-8B", chatml, ""},
                           {"qwen2", "QwQ 32B", chatml, ""},
                           {"qwen2moe", "Qwen2-57B-A14B-Instruct", chatml, ""},
                           {"qwen2", "Qwen2.5-Math-7B", chatml, ""},
                           {"llama", "Qwen3 8B llamafied", chatml, ""}}) {
    INFO(family.architecture << " " << family.name);
    const auto chat = ChatTemplate::from_checkpoint(without_template(family));
    REQUIRE(!chat.has_value());
    CHECK(chat.error().code == ErrorCode::unsupported);
    CHECK(chat.error().what.find("no chat template") != std::string::npos);
    CHECK(chat.error().what.find("run without --chat") != std::string::npos);
  }
}

TEST_CASE("chat template: a broken one is an error, never replaced by a built-in one") {
  const std::vector<std::string> tokens = {"<|im_start|>", "<|im_end|>"};
  CHECK(!ChatTemplate::from_checkpoint(
             checkpoint_with({{"general.architecture", std::string("qwen3moe")},
                              {"tokenizer.ggml.tokens", tokens},
                              {"tokenizer.chat_template", std::string("{% if %}")}}))
             .has_value());
}

TEST_CASE("chat template: BOS and EOS are the texts of the tokens that the file names") {
  const std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "<x>"};
  const std::string source = "{{ bos_token }}|{{ eos_token }}";
  const auto spm = ChatTemplate::from_checkpoint(
      checkpoint_with({{"tokenizer.ggml.model", std::string("llama")},
                       {"tokenizer.ggml.tokens", tokens},
                       {"tokenizer.ggml.eos_token_id", std::uint64_t{3}},
                       {"tokenizer.chat_template", source}}));
  REQUIRE(spm.has_value());
  CHECK(rendered(*spm, {}) == "<s>|<x>");
  const auto bpe = ChatTemplate::from_checkpoint(
      checkpoint_with({{"tokenizer.ggml.model", std::string("gpt2")},
                       {"tokenizer.ggml.tokens", tokens},
                       {"tokenizer.ggml.bos_token_id", std::uint64_t{99}},
                       {"tokenizer.chat_template", source}}));
  REQUIRE(bpe.has_value());
  CHECK(rendered(*bpe, {}) == "|");
}

}  // namespace
}  // namespace millrace
