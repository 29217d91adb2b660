// Numbers of the metadata: what is read, and what is refused by file and key.
#include "model/hparams.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/limits.h"
#include "tests/support/tiny_checkpoint.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

using Edit = std::function<void(TinyModel&)>;

struct BadKey {
  Edit edit;
  std::vector<std::string> parts;
  ErrorCode code = ErrorCode::format;
};

Edit key(const char* name, std::uint32_t value) {
  return [=](TinyModel& model) { model.u32(name, value); };
}
Edit real(const char* name, float value) {
  return [=](TinyModel& model) { model.f32(name, value); };
}
Edit missing(const char* name) {
  return [=](TinyModel& model) { model.erase(name); };
}
Edit array(const char* name, std::vector<std::uint32_t> values) {
  return [=](TinyModel& model) { model.numbers(name, values); };
}

void check_all(const TinyShape& shape, const std::vector<BadKey>& cases) {
  for (const BadKey& bad : cases) {
    TinyModel model(shape);
    bad.edit(model);
    check_tiny_refused(model, bad.code, bad.parts);
  }
}

Hparams read(const TinyModel& model) {
  auto spec = tiny_spec(model);
  if (!spec) FAIL(spec.error().what);
  return spec->hparams;
}

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinite = std::numeric_limits<float>::infinity();

}  // namespace

TEST_CASE("hparams: a missing key is refused by file and key") {
  const std::string prefix = "metadata key qwen3moe";
  for (const char* name :
       {".block_count", ".embedding_length", ".context_length", ".attention.head_count",
        ".attention.layer_norm_rms_epsilon", ".expert_used_count", ".expert_feed_forward_length"})
    check_all({}, {{missing(name), {prefix + name + ": missing"}}});
  check_all({}, {{missing(".vocab_size"), {"tokenizer.ggml.tokens", "qwen3moe.vocab_size"}}});
  check_all({}, {{missing(".expert_count"), {prefix + ".expert_count", "missing or 0"}}});
  check_all(dense_shape(), {{missing(".feed_forward_length"), {"llama.feed_forward_length"}}});
  TinyShape mixtral;
  mixtral.architecture = "llama";
  check_all(mixtral, {{missing(".feed_forward_length"), {"llama.feed_forward_length", "missing"}}});
}

TEST_CASE("hparams: sizes of zero or beyond every bound are refused") {
  check_all(
      {}, {
              {key(".block_count", 0), {"qwen3moe.block_count", "0 is outside 1 to 512"}},
              {key(".block_count", limits::layers_max + 1), {"qwen3moe.block_count", "513"}},
              {key(".embedding_length", 0), {"qwen3moe.embedding_length", "0 is outside"}},
              {key(".embedding_length", 0xffffffff), {"qwen3moe.embedding_length", "4294967295"}},
              {key(".context_length", 0), {"qwen3moe.context_length"}},
              {key(".context_length", 0xffffffff), {"qwen3moe.context_length"}},
              {key(".attention.head_count", 0), {"attention.head_count:", "0 (layer 0)"}},
              {key(".attention.head_count", 100000), {"attention.head_count:", "100000 (layer 0)"}},
              {key(".attention.head_count_kv", 0), {"attention.head_count_kv", "0 (layer 0)"}},
              {key(".attention.key_length", 0), {"attention.key_length", "0 is outside"}},
              {key(".attention.key_length", 1u << 20), {"attention.key_length", "1048576"}},
              {key(".attention.value_length", 0), {"attention.value_length"}},
              {key(".vocab_size", 0), {"qwen3moe.vocab_size", "0 is outside"}},
              {key(".vocab_size", 0x7fffffff), {"qwen3moe.vocab_size", "2147483647"}},
              {key(".expert_feed_forward_length", 0), {"expert_feed_forward_length"}},
          });
}

TEST_CASE("hparams: heads must be a multiple of the KV heads in each layer") {
  check_all({}, {
                    {key(".attention.head_count_kv", 3),
                     {"attention.head_count_kv", "4 heads (layer 0)", "3 KV heads"}},
                    {key(".attention.head_count_kv", 8), {"attention.head_count_kv", "8 KV heads"}},
                    {array(".attention.head_count_kv", {2, 3}),
                     {"attention.head_count_kv", "4 heads (layer 1)", "3 KV heads"}},
                });
}

TEST_CASE("hparams: an array that is shorter than the layers is refused, a longer one is not") {
  check_all({}, {{array(".attention.head_count", {4}), {"qwen3moe.attention.head_count"}},
                 {array(".attention.head_count_kv", {}), {"qwen3moe.attention.head_count_kv"}}});
  check_all(dense_shape(), {{array(".feed_forward_length", {96}), {"llama.feed_forward_length"}}});
  TinyModel model{TinyShape{}};
  model.numbers(".attention.head_count_kv", {2, 2, 7, 7});
  CHECK(read(model).kv_heads == std::vector<std::uint32_t>{2, 2});
}

TEST_CASE("hparams: rotary dimensions are even and within the head, all of it for llama") {
  check_all({}, {
                    {key(".rope.dimension_count", 31), {"rope.dimension_count", "31", "32"}},
                    {key(".rope.dimension_count", 34), {"rope.dimension_count", "34", "32"}},
                    {key(".rope.dimension_count", 0), {"rope.dimension_count"}},
                    {real(".rope.freq_base", 1), {"rope.freq_base", "not above 1"}},
                    {real(".rope.freq_base", -10000), {"rope.freq_base"}},
                    {real(".rope.freq_base", not_a_number), {"rope.freq_base", "usable float"}},
                });
  check_all(dense_shape(),
            {{key(".rope.dimension_count", 16), {"llama.rope.dimension_count", "16"}}});
  TinyModel partial{TinyShape{}};
  partial.u32(".rope.dimension_count", 16);
  CHECK(read(partial).rotary == 16);
}

TEST_CASE("hparams: an epsilon that is no small positive number is refused") {
  const char* name = ".attention.layer_norm_rms_epsilon";
  for (const float value : {-1e-6F, 2.0F, not_a_number, infinite})
    check_all({}, {{real(name, value), {"qwen3moe.attention.layer_norm_rms_epsilon"}}});
}

TEST_CASE("hparams: expert numbers are held against each other and against the limits") {
  check_all(
      {},
      {
          {key(".expert_count", 0), {"qwen3moe.expert_count", "missing or 0"}},
          {key(".expert_count", limits::experts_max + 1), {"expert_count", "1025"}},
          {key(".expert_used_count", 9), {"expert_used_count", "9 exceeds expert_count 8"}},
          {key(".expert_used_count", 0), {"expert_used_count", "0 is outside"}},
          {key(".expert_used_count", 33), {"expert_used_count", "33 is outside"}},
          {real(".expert_weights_scale", not_a_number), {"expert_weights_scale", "usable float"}},
      });
  TinyModel model{TinyShape{}};
  CHECK(read(model).weights_scale == 1);
  CHECK(read(model.f32(".expert_weights_scale", 0)).weights_scale == 1);
  CHECK(read(model.f32(".expert_weights_scale", 2.5F)).weights_scale == 2.5F);
  CHECK(read(model).normalize_weights);
}

TEST_CASE("hparams: a value of the wrong kind is refused by file and key") {
  check_all({}, {
                    {[](TinyModel& m) { m.string(".block_count", "2"); }, {"qwen3moe.block_count"}},
                    {[](TinyModel& m) { m.set(".block_count", meta_i32, raw(-1)); },
                     {"qwen3moe.block_count"}},
                    {[](TinyModel& m) { m.string(".rope.freq_base", "x"); }, {"rope.freq_base"}},
                });
}

TEST_CASE("hparams: without head sizes the width is shared between the heads") {
  TinyShape shape;
  shape.head_dim = 16;  // 64 / 4
  TinyModel model(shape);
  model.erase(".attention.key_length").erase(".attention.value_length");
  const Hparams h = read(model);
  CHECK(h.head_dim == 16);
  CHECK(h.value_dim == 16);
  CHECK(h.rotary == 16);
  model.erase(".attention.head_count_kv");  // then as many as heads: the tensors do not suit
  check_tiny_refused(model, ErrorCode::format, {"blk.0.attn_k.weight", "shape"});
}

TEST_CASE("hparams: the keys of scaled rope are read, wrong ones refused") {
  const auto scaled = [](const char* type) {
    return TinyModel(dense_shape()).string(".rope.scaling.type", type);
  };
  TinyModel yarn = scaled("yarn");
  yarn.f32(".rope.scaling.factor", 4).u32(".rope.scaling.original_context_length", 32);
  Hparams h = read(yarn);
  CHECK(h.rope.yarn);
  CHECK(h.rope.factor == 4);
  CHECK(h.rope.original_context == 32);
  CHECK(h.rope.extension == 1);
  CHECK(h.rope.attention_factor == 1);
  CHECK(h.rope.beta_fast == 32);
  CHECK(h.rope.beta_slow == 1);
  yarn.f32(".rope.scaling.yarn_ext_factor", 0.5F).f32(".rope.scaling.attn_factor", 1.5F);
  yarn.f32(".rope.scaling.yarn_beta_fast", 16).f32(".rope.scaling.yarn_beta_slow", 2);
  h = read(yarn);
  CHECK(h.rope.extension == 0.5F);
  CHECK(h.rope.attention_factor == 1.5F);
  CHECK(h.rope.beta_fast == 16);
  CHECK(h.rope.beta_slow == 2);

  CHECK(read(scaled("linear").f32(".rope.scaling.factor", 2)).rope.factor == 2);
  CHECK(read(scaled("none").f32(".rope.scaling.factor", 2)).rope.factor == 1);
  CHECK(read(TinyModel(dense_shape()).f32(".rope.scale_linear", 8)).rope.factor == 8);
  CHECK_FALSE(read(scaled("linear")).rope.yarn);

  check_tiny_refused(scaled("longrope"), ErrorCode::unsupported,
                     {"llama.rope.scaling.type", "'longrope'"});
  check_tiny_refused(scaled("linear").f32(".rope.scaling.factor", -1), ErrorCode::format,
                     {"llama.rope.scaling.factor"});
  check_tiny_refused(scaled("yarn").f32(".rope.scaling.yarn_beta_fast", 0), ErrorCode::format,
                     {"llama.rope.scaling.yarn_beta_fast"});
  check_tiny_refused(scaled("yarn").f32(".rope.scaling.yarn_beta_slow", -1), ErrorCode::format,
                     {"llama.rope.scaling.yarn_beta_slow"});
}

TEST_CASE("hparams: the vocabulary is what key and token list agree on") {
  TinyModel model{TinyShape{}};
  const std::vector<std::string> tokens(40, "t");
  model.strings("tokenizer.ggml.tokens", tokens);
  CHECK(read(model).vocabulary == 40);  // the table has padding rows
  model.erase(".vocab_size");
  CHECK(read(model).vocabulary == 40);
  model.strings("tokenizer.ggml.tokens", std::vector<std::string>(60, "t"));
  check_tiny_refused(model, ErrorCode::format,
                     {"token_embd.weight", "48 rows", "vocabulary of 60"});
}
