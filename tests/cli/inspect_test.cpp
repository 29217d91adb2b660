// `inspect`: models of all kinds, described; texts of strangers that cannot steer a terminal.
#include <algorithm>

#include "tests/cli/gguf_edit.h"
#include "tests/cli/program.h"
#include "tests/support/gguf_builder.h"

using namespace millrace;
using namespace millrace::cli;
using millrace::testing::GgufBuilder;
using testing::TempFolder;

namespace {

Json inspected(const std::string& path) {
  const Outcome outcome = run_program({"inspect", "--json", "--tensors", path});
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  CHECK(outcome.err.empty());
  return only_json(outcome);
}

}  // namespace

TEST_CASE("inspect: the embedded model as its card has it") {
  const Json object = inspected(embedded_model());
  CHECK(text_at(object, "architecture") == "qwen3moe");
  CHECK(bool_at(object, "runnable"));
  CHECK(at(object, "problems").as_array()->empty());
  CHECK(integer_at(object, "layers") == 6);
  CHECK(integer_at(object, "experts.count") == 32);
  CHECK(integer_at(object, "experts.used") == 4);
  CHECK(integer_at(object, "experts.layers") == 6);
  const auto expert = integer_at(object, "experts.bytes_max");
  CHECK(integer_at(object, "experts.bytes_min") == expert);
  CHECK(integer_at(object, "experts.pool_bytes") == expert * 32 * 6);
  CHECK(integer_at(object, "tokenizer.tokens") == 4096);
  // The list adds up to what is said of the whole.
  std::int64_t bytes = 0;
  std::int64_t parameters = 0;
  for (const Json& tensor : *at(object, "tensor_list").as_array()) {
    bytes += integer_at(tensor, "bytes");
    std::int64_t elements = 1;
    for (const std::int64_t extent : integers(at(tensor, "shape"))) elements *= extent;
    parameters += elements;
  }
  CHECK(integer_at(object, "tensor_bytes") == bytes);
  CHECK(integer_at(object, "parameters") == parameters);
  std::int64_t by_type = 0;
  for (const Json& use : *at(object, "types").as_array()) by_type += integer_at(use, "bytes");
  CHECK(by_type == bytes);
  const Outcome text = run_program({"inspect", "--tensors", embedded_model()});
  CHECK(contains(text.out, "4 of 32 in each of 6 layers"));
  CHECK(contains(text.out, "blk.5.ffn_down_exps.weight"));
  CHECK_FALSE(contains(run_program({"inspect"}).out, "blk.5.ffn_down_exps.weight"));
}

TEST_CASE("inspect: an architecture that cannot run is described, with the reason") {
  const TempFolder folder;
  GgufBuilder model;
  model.string("general.architecture", "walrus")
      .u32("walrus.block_count", 3)
      .u32("walrus.expert_used_count", 2)
      .f32_tensor("token_embd.weight", {32, 8})
      .f32_tensor("blk.0.ffn_up_exps.weight", {32, 16, 4})
      .f32_tensor("blk.0.ffn_down_exps.weight", {16, 32, 4});
  const Json object = inspected(folder.write("model.gguf", model.build()));
  CHECK(text_at(object, "architecture") == "walrus");
  CHECK_FALSE(bool_at(object, "runnable"));
  CHECK(integer_at(object, "layers") == 3);
  CHECK(integer_at(object, "experts.count") == 4);
  CHECK(integer_at(object, "experts.bytes_max") == 2 * 32 * 16 * 4);
  CHECK(text_at(object, "template.state") == "none");
  const auto& problems = *at(object, "problems").as_array();
  REQUIRE_FALSE(problems.empty());
  CHECK(contains(*problems[0].as_string(), "'walrus' is not supported"));
}

TEST_CASE("inspect: a key that nothing reads is told, as a run tells it") {
  const TempFolder folder;
  GgufEdit model(read_file(small_model()));
  model.rename("qwen3moe.rope.freq_base", "qwen3moe.rope.freq_bbse");
  const std::string path = folder.write("model.gguf", model.bytes());
  const Json object = inspected(path);
  CHECK(bool_at(object, "runnable"));
  const auto& problems = *at(object, "problems").as_array();
  REQUIRE(problems.size() == 1);
  CHECK(contains(*problems[0].as_string(), "qwen3moe.rope.freq_bbse"));
  const Outcome run = run_program({"run", path, "-p", "a", "-n", "1"});
  CHECK(run.code == 0);
  CHECK(contains(run.err, "qwen3moe.rope.freq_bbse"));
}

TEST_CASE("inspect: nothing in a file reaches the terminal as a control character") {
  const TempFolder folder;
  const std::string evil = "\x1b]0;owned\x07\x1b[2J\xc2\x9b\x33\x31m\xff\r\n";
  GgufBuilder model;
  model.string("general.architecture", evil)
      .string("general.name", evil)
      .string("tokenizer.ggml.model", evil)
      .string("tokenizer.ggml.pre", evil)
      .string("tokenizer.chat_template", "{% " + evil)
      .strings("tokenizer.ggml.tokens", {evil, "a"})
      .f32_tensor(evil, {32})
      .f32_tensor("blk.0.ffn_down." + evil, {32});
  const std::string path = folder.write("model.gguf", model.build());
  for (const Words& flags : {Words{}, Words{"--json"}}) {
    const Outcome outcome = run_program(Words{"inspect", "--tensors", path} + flags);
    CHECK(outcome.code == 0);
    for (const std::string& text : {outcome.out, outcome.err}) {
      CHECK(std::none_of(text.begin(), text.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return (byte < 0x20 && byte != '\n') || byte == 0x7F;
      }));
      CHECK_FALSE(contains(text, "\xc2\x9b"));
    }
    CHECK(contains(outcome.out, "owned"));
  }
}

TEST_CASE("inspect: what is no model is refused") {
  const TempFolder folder;
  CHECK(run_program({"inspect", folder.path("absent")}).code == 2);
  const Outcome text = run_program({"inspect", folder.write("text", "hello, this is no model")});
  CHECK(text.code == 3);
  CHECK(contains(text.err, "not a model file"));
  CHECK(text.out.empty());
}
