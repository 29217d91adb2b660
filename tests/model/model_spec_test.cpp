// Tensors of a model: where they lie, and what is refused by file and tensor.
#include "model/model_spec.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "tests/support/tiny_checkpoint.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

ModelSpec read(const TinyModel& model) {
  auto spec = tiny_spec(model);
  if (!spec) FAIL(spec.error().what);
  return *std::move(spec);
}

std::vector<std::string> names_of(TinyModel model) {
  std::vector<std::string> names;
  for (const BuiltTensor& tensor : model.tensors()) names.push_back(tensor.name);
  return names;
}

TinyShape mixtral_shape() {
  TinyShape shape;
  shape.architecture = "llama";
  return shape;
}

// Extra tensors are told as warnings; the tests that add some need not show them.
class QuietLog {
 public:
  QuietLog() : before_(log_level()) { set_log_level(LogLevel::error); }
  ~QuietLog() { set_log_level(before_); }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;

 private:
  LogLevel before_;
};

}  // namespace

TEST_CASE("model: every tensor of a layer is asked for by its name") {
  const QuietLog quiet;
  for (const TinyShape& shape : {TinyShape{}, mixtral_shape(), dense_shape()}) {
    for (const std::string& name : names_of(TinyModel(shape))) {
      if (name == "output.weight") continue;  // then the embedding serves
      TinyModel model(shape);
      model.take(name);
      check_tiny_refused(model, ErrorCode::format, {"tensor " + name, "missing"});
    }
  }
}

TEST_CASE("model: a tensor of another shape is refused with both shapes") {
  for (const TinyShape& shape : {TinyShape{}, mixtral_shape(), dense_shape()}) {
    for (const std::string& name : names_of(TinyModel(shape))) {
      TinyModel grown(shape);
      BuiltTensor& tensor = grown.tensor(name);
      tensor.ne.back() += 1;
      tensor.data.resize(tensor.data.size() * tensor.ne.back() / (tensor.ne.back() - 1));
      if (name == "token_embd.weight" || name == "output.weight") {
        CHECK(tiny_spec(grown).has_value());  // a padding row
        continue;
      }
      check_tiny_refused(grown, ErrorCode::format,
                         {"tensor " + name, "has shape", std::to_string(tensor.ne.back())});

      TinyModel turned(shape);
      BuiltTensor& matrix = turned.tensor(name);
      if (matrix.ne.size() < 2 || matrix.ne[0] == matrix.ne[1]) continue;
      std::swap(matrix.ne[0], matrix.ne[1]);
      check_tiny_refused(turned, ErrorCode::format, {"tensor " + name, "has shape"});
    }
  }
}

TEST_CASE("model: a vector of higher dimension, or a stack that is too deep, is refused") {
  TinyModel deep{TinyShape{}};
  deep.take("blk.1.attn_norm.weight");
  deep.add_random("blk.1.attn_norm.weight", {64, 2}, DType::f32);
  check_tiny_refused(deep, ErrorCode::format, {"tensor blk.1.attn_norm.weight", "{64, 2, 1, 1}"});
  TinyModel stack{TinyShape{}};
  stack.take("blk.0.attn_q.weight");
  stack.add_random("blk.0.attn_q.weight", {64, 128, 2}, DType::f32);
  check_tiny_refused(stack, ErrorCode::format, {"tensor blk.0.attn_q.weight", "{64, 128, 2, 1}"});
}

TEST_CASE("model: a type without kernels is named, for every role") {
  struct Case {
    const char* name;
    std::uint32_t type;
    std::size_t block_elems, block_bytes;
    const char* said;
  };
  TinyShape shape;
  shape.width = 256;
  shape.expert_width = 256;
  shape.heads = 8;
  for (const Case& c :
       {Case{"blk.0.attn_q.weight", 34, 256, 54, "TQ1_0"},
        Case{"blk.1.ffn_down_exps.weight", 35, 256, 66, "TQ2_0"},
        Case{"blk.1.ffn_gate_inp.weight", 41, 128, 18, "Q1_0"},
        Case{"token_embd.weight", 42, 64, 18, "Q2_0"}, Case{"output_norm.weight", 28, 1, 8, "F64"},
        Case{"blk.0.attn_k.weight", 26, 1, 4, "I32"}}) {
    TinyModel model(shape);
    BuiltTensor& tensor = model.tensor(c.name);
    std::size_t elements = 1;
    for (const std::uint64_t extent : tensor.ne) elements *= extent;
    tensor.type = c.type;
    tensor.data.assign(elements / c.block_elems * c.block_bytes, '\0');
    check_tiny_refused(model, ErrorCode::unsupported,
                       {std::string("tensor ") + c.name, std::string("type ") + c.said});
  }
  TinyModel model(shape);
  model.take("blk.0.attn_norm.weight");
  model.add("blk.0.attn_norm.weight", {256}, DType::q8_0, random_weights(DType::q8_0, 256, 1, 1));
  check_tiny_refused(model, ErrorCode::unsupported,
                     {"tensor blk.0.attn_norm.weight", "type Q8_0: a vector must be"});
}

TEST_CASE("model: a bias or scale of a used matrix is refused where the family has none") {
  for (const char* base : {"blk.0.attn_q", "blk.1.attn_output", "blk.0.ffn_gate_exps",
                           "blk.1.ffn_down_exps", "blk.0.ffn_gate_inp", "output", "token_embd"}) {
    for (const char* suffix : {".bias", ".scale"}) {
      const bool experts = std::string(base).find("_exps") != std::string::npos;
      if (experts && suffix == std::string(".scale")) continue;  // any family may have these
      TinyModel model{TinyShape{}};
      model.add_random(std::string(base) + suffix, {64}, DType::f32);
      check_tiny_refused(model, ErrorCode::unsupported,
                         {std::string("tensor ") + base + suffix, "wrong results"});
    }
  }
  TinyModel fused{TinyShape{}};
  fused.fuse_qkv();
  fused.add_random("blk.0.attn_qkv.bias", {256}, DType::f32);
  check_tiny_refused(fused, ErrorCode::unsupported, {"tensor blk.0.attn_qkv.bias"});

  TinyModel dense(dense_shape());
  dense.add_random("blk.0.ffn_down.scale", {1}, DType::f32);
  check_tiny_refused(dense, ErrorCode::unsupported, {"tensor blk.0.ffn_down.scale"});
}

TEST_CASE("model: scales of experts are taken, one for each, and of the form that the file has") {
  const QuietLog quiet;
  TinyModel model{TinyShape{}};
  model.add_random("blk.1.ffn_up_exps.scale", {8}, DType::f32);
  CHECK(read(model).layers[1].vector(VectorRole::expert_up_scale).has_value());
  CHECK_FALSE(read(model).layers[0].vector(VectorRole::expert_up_scale).has_value());
  // Converters leave out those that are 1: told, for they may have been lost too.
  CHECK(read(model).notes() ==
        std::vector<std::string>{"blk.0.ffn_up_exps.scale is not there and counts as 1; "
                                 "blk.1.ffn_up_exps.scale is there"});
  model.add_random("blk.0.ffn_down_exps.scale", {7}, DType::f32);
  check_tiny_refused(model, ErrorCode::format, {"tensor blk.0.ffn_down_exps.scale", "has shape"});
  TinyModel fused{TinyShape{}};
  fused.fuse_gate_up();
  fused.add_random("blk.0.ffn_gate_up_exps.scale", {8}, DType::f32);
  CHECK(read(fused).layers[0].vector(VectorRole::expert_gate_up_scale).has_value());
}

TEST_CASE("model: biases of llama are taken, with the right length only") {
  TinyModel model(dense_shape());
  for (const std::string block : {"blk.0.", "blk.1."}) {
    model.add_random(block + "attn_q.bias", {128}, DType::f32);
    model.add_random(block + "attn_k.bias", {64}, DType::f32);
    model.add_random(block + "attn_v.bias", {64}, DType::f32);
    model.add_random(block + "attn_output.bias", {64}, DType::f32);
  }
  const ModelSpec spec = read(model);
  CHECK(spec.layers[0].vector(VectorRole::attn_q_bias).has_value());
  CHECK(spec.layers[1].vector(VectorRole::attn_output_bias).has_value());
  CHECK_FALSE(spec.layers[1].vector(VectorRole::ffn_gate_bias).has_value());
  TinyModel longer = model;
  longer.take("blk.1.attn_k.bias");
  longer.add_random("blk.1.attn_k.bias", {128}, DType::f32);
  check_tiny_refused(longer, ErrorCode::format, {"tensor blk.1.attn_k.bias", "has shape"});
  model.add_random("blk.1.ffn_gate.bias", {95}, DType::f32);
  check_tiny_refused(model, ErrorCode::format, {"tensor blk.1.ffn_gate.bias", "has shape"});
}

TEST_CASE("model: biases in one layer only, or of q only, are refused and not filled with zeros") {
  struct Case {
    const char* there;
    std::uint64_t count;
    const char* missing;
  };
  for (const Case& c : {Case{"blk.0.attn_q.bias", 128, "blk.0.attn_k.bias"},
                        Case{"blk.1.attn_v.bias", 64, "blk.0.attn_q.bias"},
                        Case{"blk.1.attn_output.bias", 64, "blk.0.attn_output.bias"},
                        Case{"blk.0.ffn_down.bias", 64, "blk.0.ffn_gate.bias"}}) {
    TinyModel model(dense_shape());
    model.add_random(c.there, {c.count}, DType::f32);
    check_tiny_refused(model, ErrorCode::format,
                       {std::string("tensor ") + c.missing + ": missing, but " + c.there});
  }
  TinyModel fused(dense_shape());
  fused.fuse_qkv();
  fused.add_random("blk.1.attn_qkv.bias", {256}, DType::f32);
  check_tiny_refused(fused, ErrorCode::format,
                     {"tensor blk.0.attn_qkv.bias: missing, but blk.1.attn_qkv.bias"});
}

TEST_CASE("model: tensors that nobody knows do not matter") {
  const QuietLog quiet;
  TinyModel model{TinyShape{}};
  model.add_random("blk.0.something_new.weight", {64, 64}, DType::f32);
  model.add_random("mystery.bias", {3}, DType::f32);
  model.add_random("rope_freqs_extra", {7}, DType::f32);
  const ModelSpec spec = read(model);
  CHECK(spec.trunk_bytes() == read(TinyModel{TinyShape{}}).trunk_bytes());
}

TEST_CASE(
    "model: padding rows of the tables are there but are no tokens, missing ones are refused") {
  TinyModel model{TinyShape{}};
  model.u32(".vocab_size", 40);
  ModelSpec spec = read(model);
  CHECK(spec.hparams.vocabulary == 40);
  CHECK(spec.embedding.rows == 48);
  CHECK(spec.head.rows == 40);
  check_tiny_refused(model.u32(".vocab_size", 49), ErrorCode::format,
                     {"tensor token_embd.weight", "48 rows for a vocabulary of 49 tokens"});
  TinyModel short_head{TinyShape{}};
  short_head.take("output.weight");
  short_head.add_random("output.weight", {64, 47}, DType::f32);
  check_tiny_refused(short_head, ErrorCode::format,
                     {"tensor output.weight", "47 rows for a vocabulary of 48 tokens"});
}

TEST_CASE("model: a tied head is the embedding, counted once") {
  TinyShape shape;
  shape.tied = true;
  const ModelSpec tied = read(TinyModel(shape));
  CHECK(tied.tied_head);
  CHECK(tied.head.offset_bytes == tied.embedding.offset_bytes);
  const ModelSpec apart = read(TinyModel(TinyShape{}));
  CHECK_FALSE(apart.tied_head);
  CHECK(apart.trunk_bytes() - tied.trunk_bytes() == apart.head.bytes());
}

TEST_CASE("model: sums over the trunk and the pool are those of the tensors") {
  for (const TinyShape& shape : {TinyShape{}, mixtral_shape(), dense_shape()}) {
    TinyModel model(shape);
    std::uint64_t trunk = 0;
    std::uint64_t pool = 0;
    for (const BuiltTensor& tensor : model.tensors())
      (tensor.name.find("_exps") == std::string::npos ? trunk : pool) += tensor.data.size();
    const ModelSpec spec = read(model);
    CHECK(spec.trunk_bytes() == trunk);
    CHECK(spec.experts.pool_bytes() == pool);
    CHECK(spec.expert_bytes() == (pool == 0 ? 0 : pool / 16));
  }
}

TEST_CASE("model: fused, merged and separate experts lie where their numbers are") {
  const TinyModel merged{TinyShape{}};
  TinyModel fused{TinyShape{}};
  fused.fuse_gate_up();
  TinyModel separate{TinyShape{}};
  separate.separate_experts();
  const auto slice = [](const std::string& file, const MatrixExtent& extent) {
    return file.substr(extent.offset_bytes, extent.bytes());
  };
  const std::string merged_file = merged.build();
  const ModelSpec spec = read(merged);
  for (TinyModel* other : {&fused, &separate}) {
    const std::string file = other->build();
    const ModelSpec found = read(*other);
    for (LayerIndex layer = 0; layer < 2; ++layer) {
      for (ExpertIndex expert = 0; expert < 8; ++expert) {
        const ExpertExtent& a = spec.experts.at({layer, expert});
        const ExpertExtent& b = found.experts.at({layer, expert});
        REQUIRE(slice(merged_file, a.gate) == slice(file, b.gate));
        REQUIRE(slice(merged_file, a.up) == slice(file, b.up));
        REQUIRE(slice(merged_file, a.down) == slice(file, b.down));
      }
    }
  }
}

TEST_CASE("model: half of an expert, or both forms of it, are refused") {
  TinyModel both{TinyShape{}};
  both.add_random("blk.1.ffn_gate_up_exps.weight", {64, 64, 8}, DType::f32);
  check_tiny_refused(both, ErrorCode::format,
                     {"tensor blk.1.ffn_gate_up_exps.weight", "beside separate"});
  TinyModel short_one{TinyShape{}};
  short_one.separate_experts();
  short_one.take("blk.1.ffn_up.7.weight");
  check_tiny_refused(short_one, ErrorCode::format, {"tensor blk.1.ffn_up.7.weight", "missing"});
  TinyModel fused{TinyShape{}};
  fused.fuse_gate_up();
  fused.tensor("blk.0.ffn_gate_up_exps.weight").ne[1] = 32;
  fused.tensor("blk.0.ffn_gate_up_exps.weight").ne[2] = 16;
  check_tiny_refused(fused, ErrorCode::format, {"tensor blk.0.ffn_gate_up_exps.weight", "shape"});
}

TEST_CASE("model: divisors of rope frequencies are read, of the right number only") {
  TinyModel model(dense_shape());
  model.add_random("rope_freqs.weight", {16}, DType::f32);
  CHECK(read(model).rope_factors.has_value());
  TinyModel wrong(dense_shape());
  wrong.add_random("rope_freqs.weight", {32}, DType::f32);
  check_tiny_refused(wrong, ErrorCode::format, {"tensor rope_freqs.weight", "shape"});
}

TEST_CASE("model: an unknown architecture is refused by name, with those that are known") {
  TinyModel model{TinyShape{}};
  model.string("general.architecture", "gpt9\x1b[31m");
  check_tiny_refused(model, ErrorCode::unsupported,
                     {"architecture 'gpt9\\x1b[31m'", "(known: ", "llama", "qwen3moe"});
  model.erase("general.architecture");
  check_tiny_refused(model, ErrorCode::format, {"general.architecture", "missing"});
}
