// The same numbers laid out otherwise in the file give the same bits of logits.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "tests/support/tiny_engine.h"

using namespace millrace;
using namespace millrace::test;
using namespace millrace::testing;

namespace {

std::vector<float> run(const TinyModel& model, ActivationMode activations = ActivationMode::q8) {
  const TempFolder folder;
  EngineConfig config = tiny_config(folder.write("m.gguf", model.build()));
  config.activations = activations;
  return logits_of(config, some_ids(9));
}

TinyShape moe_shape(DType matrices) {
  TinyShape shape;
  shape.matrices = matrices;
  return shape;
}

TinyShape mixtral_shape(DType matrices) {
  TinyShape shape = moe_shape(matrices);
  shape.architecture = "llama";
  return shape;
}

TinyModel with_qkv_biases(const TinyShape& shape) {
  TinyModel model(shape);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".attn_";
    model.add_random(prefix + "q.bias", {shape.heads * shape.head_dim}, DType::f32);
    model.add_random(prefix + "k.bias", {shape.kv_heads * shape.head_dim}, DType::f32);
    model.add_random(prefix + "v.bias", {shape.kv_heads * shape.head_dim}, DType::f32);
  }
  return model;
}

std::string zeros(std::size_t floats) { return std::string(floats * sizeof(float), '\0'); }

}  // namespace

TEST_CASE("fused attn_qkv gives the bits of separate tensors, with biases too") {
  for (const DType type : {DType::f32, DType::q8_0, DType::bf16}) {
    for (const TinyShape& shape : {moe_shape(type), mixtral_shape(type)}) {
      TinyModel fused(shape);
      fused.fuse_qkv();
      CHECK(run(TinyModel(shape)) == run(fused));
    }
    TinyShape dense = dense_shape();
    dense.matrices = type;
    const TinyModel biased = with_qkv_biases(dense);
    TinyModel fused = biased;
    fused.fuse_qkv();
    const std::vector<float> expected = run(biased);
    CHECK(expected == run(fused));
    CHECK(expected != run(TinyModel(dense)));
  }
}

TEST_CASE("fused, merged and separate experts give the same bits") {
  for (const DType type : {DType::f32, DType::f16, DType::q8_0, DType::q4_0, DType::mxfp4}) {
    for (const TinyShape& shape : {moe_shape(type), mixtral_shape(type)}) {
      const std::vector<float> expected = run(TinyModel(shape));
      TinyModel fused(shape);
      fused.fuse_gate_up();
      CHECK(expected == run(fused));
      TinyModel separate(shape);
      separate.separate_experts();
      CHECK(expected == run(separate));
    }
  }
}

TEST_CASE("a model in several files gives the bits of the one file, opened by any of them") {
  const TinyModel model(moe_shape(DType::q8_0));
  const std::vector<float> expected = run(model);
  for (const std::uint16_t count : {std::uint16_t{2}, std::uint16_t{5}}) {
    const TempFolder folder;
    const auto files = model.build_split(count);
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < files.size(); ++i)
      paths.push_back(folder.write(
          "m-0000" + std::to_string(i + 1) + "-of-0000" + std::to_string(count) + ".gguf",
          files[i]));
    for (const std::string& path : {paths.front(), paths.back()})
      CHECK(expected == logits_of(tiny_config(path), some_ids(9)));
  }
}

TEST_CASE("a head that equals the embedding gives the bits of a tied one") {
  for (const DType type : {DType::f32, DType::q8_0}) {
    TinyShape shape = moe_shape(type);
    shape.tied = true;
    const TinyModel tied(shape);
    TinyModel apart(shape);
    apart.add("output.weight", {64, 48}, type, apart.tensor("token_embd.weight").data);
    CHECK(run(tied) == run(apart));
  }
}

TEST_CASE("padding rows of the tables produce no logits and change none") {
  TinyShape shape = moe_shape(DType::f32);
  TinyModel padded(shape);
  padded.u32(".vocab_size", 40);
  const TempFolder folder;
  const auto engine = open_engine(tiny_config(folder.write("m.gguf", padded.build())));
  const std::vector<float> few = logits_of(*engine->engine, some_ids(5, 40));
  const std::vector<float> all =
      logits_of(tiny_config(folder.write("all.gguf", TinyModel(shape).build())), some_ids(5, 40));
  REQUIRE(few.size() == 5 * 40);
  for (std::size_t t = 0; t < 5; ++t)
    for (std::size_t id = 0; id < 40; ++id) REQUIRE(few[t * 40 + id] == all[t * 48 + id]);
}

TEST_CASE("dense layers of unequal width give the bits of layers padded with zeros") {
  TinyShape shape = dense_shape();
  shape.layers = 3;
  shape.dense_width = {32, 96, 64};
  const TinyModel ragged(shape);
  TinyModel padded(shape);
  padded.numbers(".feed_forward_length", {96, 96, 96});
  for (std::uint32_t layer = 0; layer < 3; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".ffn_";
    const std::size_t inner = shape.dense_width[layer];
    for (const char* part : {"gate.weight", "up.weight"}) {
      BuiltTensor& tensor = padded.tensor(prefix + part);
      tensor.ne[1] = 96;
      tensor.data += zeros((96 - inner) * 64);
    }
    BuiltTensor& down = padded.tensor(prefix + "down.weight");
    std::string wide;
    for (std::size_t row = 0; row < 64; ++row)
      wide += down.data.substr(row * inner * 4, inner * 4) + zeros(96 - inner);
    down.ne[0] = 96;
    down.data = wide;
  }
  for (const ActivationMode mode : {ActivationMode::f32, ActivationMode::q8})
    CHECK(run(ragged, mode) == run(padded, mode));
}

TEST_CASE("layers may have different numbers of heads") {
  TinyShape shape = dense_shape();
  shape.matrices = DType::q8_0;
  TinyModel model(shape);
  model.numbers(".attention.head_count", {4, 2}).numbers(".attention.head_count_kv", {2, 1});
  for (const char* part : {"q", "k", "v"}) {
    BuiltTensor& tensor = model.tensor(std::string("blk.1.attn_") + part + ".weight");
    tensor.ne[1] /= 2;
    tensor.data.resize(tensor.data.size() / 2);
  }
  model.take("blk.1.attn_output.weight");
  model.add_random("blk.1.attn_output.weight", {64, 64}, DType::q8_0);
  // The same with the heads that are missing there, whose output meets zeros.
  TinyModel whole = model;
  whole.u32(".attention.head_count", 4).u32(".attention.head_count_kv", 2);
  for (const char* part : {"q", "k", "v"}) {
    const std::string name = std::string("blk.1.attn_") + part + ".weight";
    whole.tensor(name) = TinyModel(shape).tensor(name);
  }
  BuiltTensor& output = whole.tensor("blk.1.attn_output.weight");
  std::string wide;
  const std::size_t half = output.data.size() / 64;
  for (std::size_t row = 0; row < 64; ++row)
    wide += output.data.substr(row * half, half) + std::string(half, '\0');
  output.ne[0] = 128;
  output.data = wide;
  for (const ActivationMode mode : {ActivationMode::f32, ActivationMode::q8})
    CHECK(run(model, mode) == run(whole, mode));
}

TEST_CASE("divisors of rope frequencies are used") {
  const TinyModel plain(dense_shape());
  TinyModel ones(dense_shape());
  std::string data;
  for (int i = 0; i < 16; ++i) data += raw(1.0F);
  ones.add("rope_freqs.weight", {16}, DType::f32, data);
  CHECK(run(plain) == run(ones));
  // Divided by 4 throughout: the rope of a model with a linear factor of 4.
  TinyModel fours(dense_shape());
  data.clear();
  for (int i = 0; i < 16; ++i) data += raw(4.0F);
  fours.add("rope_freqs.weight", {16}, DType::f32, data);
  TinyModel linear(dense_shape());
  linear.string(".rope.scaling.type", "linear").f32(".rope.scaling.factor", 4);
  const std::vector<float> divided = run(fours);
  CHECK(divided != run(plain));
  CHECK(divided == run(linear));
}

TEST_CASE("the keys of YaRN change the logits, each in its own way") {
  TinyModel yarn(dense_shape());
  yarn.string(".rope.scaling.type", "yarn").f32(".rope.scaling.factor", 4);
  yarn.u32(".rope.scaling.original_context_length", 32);
  const std::vector<float> base = run(yarn);
  CHECK(base != run(TinyModel(dense_shape())));
  for (const auto& [key, value] :
       {std::pair<const char*, float>{".rope.scaling.yarn_ext_factor", 0},
        {".rope.scaling.attn_factor", 1.5F},
        {".rope.scaling.yarn_beta_fast", 2},
        {".rope.scaling.factor", 2}}) {
    INFO(key);
    CHECK(run(TinyModel(yarn).f32(key, value)) != base);
  }
}
