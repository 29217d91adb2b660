// deepseek4: what is read of a file, in all its spellings, and what is refused.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kernels/rope_table.h"
#include "model/kv_cache.h"
#include "runtime/base/log.h"
#include "tests/support/tiny_checkpoint.h"
#include "tests/support/tiny_deepseek4.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

using Shape = TinyDeepseek4;

TinyModel tiny() { return Shape().build(); }

ModelSpec read(const TinyModel& model) {
  auto spec = tiny_spec(model);
  if (!spec) FAIL(spec.error().what);
  return *std::move(spec);
}

void rename(TinyModel& model, const std::string& from, const std::string& to) {
  for (BuiltTensor& tensor : model.tensors())
    if (const auto at = tensor.name.find(from); at != std::string::npos)
      tensor.name.replace(at, from.size(), to);
}

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

TEST_CASE("deepseek4: sizes, clamps and kinds of layers are those of the keys") {
  const ModelSpec spec = read(tiny());
  const Hparams& h = spec.hparams;
  CHECK(h.attention == AttentionKind::compressed);
  CHECK(h.gating == Gating::sqrt_softplus);
  CHECK(h.normalize_weights);
  CHECK(h.window(3) == Shape::window);
  CHECK(h.streams.count == 2);
  CHECK(h.compression.indexed(1));
  CHECK_FALSE(h.compression.indexed(2));
  CHECK(h.compression.halves(2) == 1);
  CHECK(h.hashed(0));
  CHECK_FALSE(h.hashed(1));
  CHECK(Hparams::clamp(h.expert_clamp, 2)->limit == 0.05F);
  CHECK(Hparams::clamp(h.shared_clamp, 2)->limit == 0.04F);
  CHECK(spec.layers[0].hash_table.has_value());
  CHECK_FALSE(spec.layers[1].hash_table.has_value());
  CHECK(read(tiny().erase(".swiglu_clamp_shexp")).hparams.shared_clamp[1].limit == 0.05F);
  CHECK(Hparams::clamp(read(tiny().f32(".swiglu_clamp_exp", 0)).hparams.expert_clamp, 0) ==
        nullptr);
  CHECK(read(tiny().erase(".hyper_connection.sinkhorn_iterations")).hparams.streams.iterations ==
        20);
}

TEST_CASE("deepseek4: padding rows of the table are left alone, too few rows are refused") {
  TinyModel padded = tiny();
  BuiltTensor& table = padded.tensor("blk.0.ffn_gate_tid2eid.weight");
  table.ne[1] += 3;
  table.data += std::string(3 * Shape::used * 4, '\xff');
  CHECK(read(padded).layers[0].hash_table->rows == Shape::vocabulary);
  table.ne[1] = Shape::vocabulary - 1;
  table.data.resize(table.ne[1] * Shape::used * 4);
  check_tiny_refused(padded, ErrorCode::format, {"ffn_gate_tid2eid.weight", "has shape"});
}

TEST_CASE("deepseek4: angles of compressed layers are stretched, of the others not") {
  TinyModel model = tiny();
  const Hparams h = read(model).hparams;
  CHECK_FALSE(h.rope.yarn);
  CHECK(h.rope.base == 10000);
  CHECK(h.magnitude == 1);
  CHECK(h.attention_scale == Approx(1 / std::sqrt(8.0)));
  RopeScaling rope = h.compression.rope;
  rope.rotary = 64;  // as the published model has it
  double theta[32];
  rope_frequencies(rope, theta);
  CHECK(theta[0] == 1);
  CHECK(theta[8] == Approx(0.05).epsilon(1e-9));
  CHECK(theta[12] == Approx(0.0111803399).epsilon(1e-8));
  CHECK(theta[16] == Approx(0.002265625).epsilon(1e-9));
  CHECK(theta[20] == Approx(0.000296977778).epsilon(1e-8));
  CHECK(theta[31] == Approx(5.68052904e-07).epsilon(1e-8));
  float cosine[32], sine[32];
  rope_row(theta, 32, 1000, 1, cosine, sine);
  CHECK(cosine[0] - sine[0] == Approx(-0.264500).margin(2e-6));  // a pair of ones, turned
  CHECK(cosine[0] + sine[0] == Approx(1.389259).margin(2e-6));
  CHECK(cosine[28] - sine[28] == Approx(0.998251).margin(2e-6));
}

TEST_CASE("deepseek4: tensors are found under the other names that files have") {
  const QuietLog quiet;
  const std::vector<std::pair<std::string, std::string>> spellings = {
      {"attn_kv.", "attn_kv_latent."},
      {"attn_kv.", "attn_kv_a_mqa."},
      {"attn_kv_a_norm", "attn_kv_norm"},
      {"attn_compressor_", "attn_compress_"},
      {"indexer_compressor_", "indexer.compress_"},
      {"indexer_compressor_", "indexer.compressor_"},
      {"output_hc_", "hc_head_"},
      {"exp_probs_b.bias", "exp_probs_b.weight"}};
  for (const auto& [usual, other] : spellings) {
    TinyModel model = tiny();
    rename(model, usual, other);
    INFO(other);
    CHECK(tiny_spec(model).has_value());
  }
}

TEST_CASE("deepseek4: every tensor is needed, in its shape and type") {
  const QuietLog quiet;
  TinyModel whole = tiny();
  for (const BuiltTensor& tensor : whole.tensors()) {
    const std::string name(tensor.name);
    if (name == "output.weight") continue;
    TinyModel model = tiny();
    model.take(name);
    check_tiny_refused(model, ErrorCode::format, {"tensor " + name, "missing"});
    if (tensor.ne.size() < 2 || tensor.ne[0] == tensor.ne[1] || name == "token_embd.weight")
      continue;
    TinyModel turned = tiny();
    std::swap(turned.tensor(name).ne[0], turned.tensor(name).ne[1]);
    check_tiny_refused(turned, ErrorCode::format, {"tensor " + name, "has shape"});
  }
  TinyModel floats = tiny();
  floats.tensor("blk.0.ffn_gate_tid2eid.weight").type = static_cast<std::uint32_t>(DType::f32);
  check_tiny_refused(floats, ErrorCode::unsupported, {"ffn_gate_tid2eid.weight", "F32", "I32"});
}

TEST_CASE("deepseek4: keys that do not fit are refused by name and number") {
  const auto refused = [](const std::function<void(TinyModel&)>& edit,
                          const std::vector<std::string>& parts) {
    TinyModel model = tiny();
    edit(model);
    check_tiny_refused(model, ErrorCode::format, parts);
  };
  const auto number = [&](const char* key, std::uint32_t value, const std::string& said) {
    refused([&](TinyModel& model) { model.u32(key, value); },
            {std::string("deepseek4") + key, said});
  };
  refused([](TinyModel& model) { model.u32(".attention.head_count", 3); },
          {"deepseek4.attention.output_group_count", "2 does not divide attention.head_count 3"});
  number(".attention.head_count_kv", 2, "2: all heads share one row");
  number(".attention.value_length", 16, "16 for keys of 8");
  number(".attention.sliding_window", 0, "missing or 0");
  number(".attention.output_group_count", 3, "3 does not divide attention.head_count 4");
  number(".attention.output_group_count", 5, "5 is outside 1 to 4");
  number(".attention.indexer.top_k", 0, "0 is outside");
  number(".attention.indexer.key_length", 2, "2 for a rotation of 4");
  number(".hyper_connection.count", 1, "1 is outside 2 to 8");
  number(".hyper_connection.count", 9, "9 is outside 2 to 8");
  number(".hash_layer_count", 5, "5 is outside 0 to 4");
  number(".expert_used_count", 9, "9 exceeds expert_count 8");
  number(".attention.compress_ratios", 5000, "5000 (layer 0) is outside");
  refused(
      [](TinyModel& model) {
        model.numbers(".attention.compress_ratios", {0, 4});
      },
      {"deepseek4.attention.compress_ratios", "2 entries for a model of 4 layers"});
  refused(
      [](TinyModel& model) {
        model.numbers(".attention.head_count", {4, 4, 4, 2});
      },
      {"deepseek4.attention.head_count", "differs between layers"});
  refused([](TinyModel& model) { model.f32(".swiglu_clamp_exp", -1); },
          {"deepseek4.swiglu_clamp_exp", "negative"});
  refused([](TinyModel& model) { model.f32(".hyper_connection.epsilon", 2); },
          {"deepseek4.hyper_connection.epsilon", "outside 0 to 1"});
  for (const char* key :
       {".attention.q_lora_rank", ".attention.compress_ratios", ".attention.indexer.head_count",
        ".attention.output_group_count", ".attention.output_lora_rank", ".hyper_connection.count"})
    refused([&](TinyModel& model) { model.erase(key); },
            {std::string("deepseek4") + key, "missing"});
  TinyModel gating = tiny();
  gating.u32(".expert_gating_func", 9);
  check_tiny_refused(gating, ErrorCode::unsupported, {"deepseek4.expert_gating_func", "9"});
}

TEST_CASE("deepseek4: a layer that predicts further tokens is not run, wherever it is counted") {
  const QuietLog quiet;
  // The key alone means nothing.
  CHECK(read(tiny().u32(".nextn_predict_layers", 1)).hparams.layers == 4);
  // Behind the counted blocks.
  TinyModel behind = tiny();
  behind.u32(".nextn_predict_layers", 1);
  behind.add_random("blk.4.nextn.eh_proj.weight", {32, 16}, DType::f32);
  CHECK(read(behind).hparams.layers == 4);
  // Among them.
  TinyModel among = behind;
  among.u32(".block_count", 5);
  CHECK(read(among).hparams.layers == 4);
  CHECK(read(among).hparams.nextn_layers == 1);
  // Apart, under a name of its own.
  TinyModel apart = tiny();
  apart.add_random("mtp.0.e_proj.weight", {16, 16}, DType::f32);
  CHECK(read(apart).hparams.layers == 4);
}

TEST_CASE("deepseek4: memory of a long context is what its layers keep") {
  Hparams h = read(tiny()).hparams;
  h.head_dim = h.value_dim = 512;
  h.compression.index_dim = 128;
  constexpr std::uint64_t context = 1u << 20;
  const std::uint64_t bytes = KvCache::bytes(h, context, KvType::f16, 64);
  // Two layers with a row of 512 and one of 128 per 4 positions, one with a row per 8.
  const std::uint64_t rows = 2 * (512 + 128) * 2 * (context / 4) + 512 * 2 * (context / 8);
  const std::uint64_t order = 8 * (context / 4);
  CHECK(bytes >= rows + order);
  CHECK(bytes < rows + order + (std::uint64_t{24} << 20));
}
