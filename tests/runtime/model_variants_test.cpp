// The same numbers laid out otherwise in the file give the same bits of logits.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/reference.h"
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

// The same numbers as F32.
BuiltTensor decoded(const BuiltTensor& tensor) {
  const auto type = static_cast<DType>(tensor.type);
  BuiltTensor out = tensor;
  out.type = static_cast<std::uint32_t>(DType::f32);
  out.data.clear();
  const std::size_t columns = tensor.ne[0];
  std::vector<double> row(columns);
  for (std::size_t at = 0; at < tensor.data.size(); at += dtype_row_bytes(type, columns)) {
    reference::decode_row(type, reinterpret_cast<const std::byte*>(tensor.data.data() + at),
                          columns, row.data());
    for (const double value : row) out.data += raw(static_cast<float>(value));
  }
  return out;
}

// Multiplies the F32 matrices of each expert by its factor.
void multiply_experts(BuiltTensor& tensor, const std::vector<float>& factors) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  const std::size_t each = values.size() / factors.size();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] *= factors[i / each];
  std::memcpy(tensor.data.data(), values.data(), tensor.data.size());
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

TEST_CASE("each matrix may have a type of its own: the bits of the same numbers as F32") {
  const std::vector<DType> types = {DType::q4_k, DType::q8_0, DType::q6_k,  DType::f16,
                                    DType::q4_0, DType::bf16, DType::mxfp4, DType::f32};
  TinyShape shape;
  shape.width = shape.expert_width = 256;
  shape.heads = 8;
  TinyModel mixed(shape);
  TinyModel plain(shape);
  std::size_t next = 0;
  for (BuiltTensor& tensor : mixed.tensors()) {
    if (tensor.ne.size() < 2 || tensor.name.find("ffn_gate_inp") != std::string::npos) continue;
    std::uint64_t rows = 1;
    for (std::size_t i = 1; i < tensor.ne.size(); ++i) rows *= tensor.ne[i];
    const DType type = types[next++ % types.size()];
    tensor.type = static_cast<std::uint32_t>(type);
    tensor.data = random_weights(type, tensor.ne[0], rows, next);
    plain.tensor(tensor.name) = decoded(tensor);
  }
  CHECK(next > 2 * types.size() - 2);  // gate, up and down differ, and so do the layers
  CHECK(mixed.tensor("blk.0.ffn_gate_exps.weight").type !=
        mixed.tensor("blk.1.ffn_gate_exps.weight").type);
  CHECK(run(mixed, ActivationMode::f32) == run(plain, ActivationMode::f32));
  CHECK(run(mixed, ActivationMode::q8) != run(plain, ActivationMode::q8));
}

TEST_CASE("scales of experts give the bits of experts that are multiplied by them") {
  const std::vector<float> factors = {0.5F, 2, 1, 4, 0.25F, 1, 8, 2};  // exact
  std::string bytes;
  for (const float factor : factors) bytes += raw(factor);
  const TinyModel plain(moe_shape(DType::f32));
  const std::vector<float> unscaled = run(plain);
  for (const std::string part : {"gate", "up", "down", "gate_up"}) {
    TinyModel scaled = plain;
    TinyModel multiplied = plain;
    for (const std::string block : {"blk.0.ffn_", "blk.1.ffn_"}) {
      if (part == "gate_up") {
        multiply_experts(multiplied.tensor(block + "gate_exps.weight"), factors);
        multiply_experts(multiplied.tensor(block + "up_exps.weight"), factors);
      } else {
        multiply_experts(multiplied.tensor(block + part + "_exps.weight"), factors);
      }
    }
    if (part == "gate_up") scaled.fuse_gate_up();
    for (const std::string block : {"blk.0.ffn_", "blk.1.ffn_"})
      scaled.add(block + part + "_exps.scale", {8}, DType::f32, bytes);
    INFO(part);
    const std::vector<float> expected = run(multiplied);
    CHECK(run(scaled) == expected);
    CHECK(expected != unscaled);
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
