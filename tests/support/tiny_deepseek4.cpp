#include "tests/support/tiny_deepseek4.h"

#include <string>

namespace millrace::testing {

namespace {

using Shape = TinyDeepseek4;

void add_keys(TinyModel& model, const Shape& shape) {
  model.u32(".rope.dimension_count", Shape::rotary);
  model.string(".rope.scaling.type", "yarn").f32(".rope.scaling.factor", 16);
  model.u32(".rope.scaling.original_context_length", 65536);
  model.u32(".attention.q_lora_rank", Shape::q_latent);
  model.u32(".attention.sliding_window", Shape::window);
  model.numbers(".attention.compress_ratios", shape.ratios);
  model.f32(".attention.compress_rope_freq_base", 160000);
  model.u32(".attention.indexer.head_count", Shape::index_heads);
  model.u32(".attention.indexer.key_length", Shape::index_dim);
  model.u32(".attention.indexer.top_k", Shape::index_top_k);
  model.u32(".attention.output_group_count", Shape::groups);
  model.u32(".attention.output_lora_rank", Shape::rank);
  model.u32(".hyper_connection.count", Shape::streams);
  model.u32(".hyper_connection.sinkhorn_iterations", Shape::iterations);
  model.f32(".hyper_connection.epsilon", 1e-6F);
  model.u32(".hash_layer_count", Shape::hashed);
  model.u32(".expert_gating_func", 4);
  model.u32(".expert_shared_count", 1);
  model.f32(".expert_weights_scale", 1.5F);
  model.set(".expert_weights_norm", meta_bool, raw(std::uint8_t{1}));
  model.f32(".swiglu_clamp_exp", 0.05F);  // small, so that it matters
  model.f32(".swiglu_clamp_shexp", 0.04F);
}

void add_streams(TinyModel& model, const std::string& base, std::uint64_t rows,
                 std::uint64_t scales) {
  model.add_random(base + "fn.weight", {Shape::streams * Shape::width, rows}, DType::f32);
  model.add_random(base + "base.weight", {rows}, DType::f32);
  model.add_random(base + "scale.weight", {scales}, DType::f32);
}

void add_compressor(TinyModel& model, const std::string& base, std::uint32_t ratio,
                    std::uint64_t columns) {
  const std::uint64_t wide = ratio == 4 ? 2 * columns : columns;
  model.add_random(base + "kv.weight", {Shape::width, wide}, DType::f32);
  model.add_random(base + "gate.weight", {Shape::width, wide}, DType::f32);
  model.add_random(base + "ape.weight", {wide, ratio}, DType::f32);
  model.add_random(base + "norm.weight", {columns}, DType::f32);
}

void add_attention(TinyModel& model, const std::string& prefix, std::uint32_t ratio) {
  const std::uint64_t columns = std::uint64_t{Shape::heads} * Shape::head_dim;
  const std::uint64_t ranks = std::uint64_t{Shape::groups} * Shape::rank;
  const auto add = [&](const char* name, std::vector<std::uint64_t> ne) {
    model.add_random(prefix + name + ".weight", std::move(ne), DType::f32);
  };
  add("attn_q_a", {Shape::width, Shape::q_latent});
  add("attn_q_a_norm", {Shape::q_latent});
  add("attn_q_b", {Shape::q_latent, columns});
  add("attn_kv", {Shape::width, Shape::head_dim});
  add("attn_kv_a_norm", {Shape::head_dim});
  add("attn_sinks", {Shape::heads});
  add("attn_output_a", {columns / Shape::groups, ranks});
  add("attn_output_b", {ranks, Shape::width});
  if (ratio == 0) return;
  add_compressor(model, prefix + "attn_compressor_", ratio, Shape::head_dim);
  if (ratio != 4) return;
  add_compressor(model, prefix + "indexer_compressor_", ratio, Shape::index_dim);
  add("indexer.attn_q_b", {Shape::q_latent, Shape::index_heads * Shape::index_dim});
  add("indexer.proj", {Shape::width, Shape::index_heads});
}

void add_experts(TinyModel& model, const std::string& prefix, bool hashed) {
  model.add_random(prefix + "ffn_gate_shexp.weight", {Shape::width, Shape::inner}, DType::f32);
  model.add_random(prefix + "ffn_up_shexp.weight", {Shape::width, Shape::inner}, DType::f32);
  model.add_random(prefix + "ffn_down_shexp.weight", {Shape::inner, Shape::width}, DType::f32);
  if (!hashed) {
    model.add_random(prefix + "exp_probs_b.bias", {Shape::experts}, DType::f32);
    return;
  }
  std::string table;
  for (std::uint32_t token = 0; token < Shape::vocabulary; ++token)
    for (std::uint32_t k = 0; k < Shape::used; ++k)
      table += raw(static_cast<std::int32_t>(Shape::hash_expert(token, k)));
  model.add(prefix + "ffn_gate_tid2eid.weight", {Shape::used, Shape::vocabulary}, DType::i32,
            table);
}

}  // namespace

std::uint32_t TinyDeepseek4::hash_expert(std::uint32_t token, std::uint32_t rank_of_expert) {
  return (token * 5 + 3 + rank_of_expert * (1 + token % 7)) % experts;
}

TinyModel TinyDeepseek4::build() const {
  TinyShape shape;
  shape.architecture = "deepseek4";
  shape.layers = layers;
  shape.width = width;
  shape.heads = heads;
  shape.kv_heads = 1;
  shape.head_dim = head_dim;
  shape.experts = experts;
  shape.experts_used = used;
  shape.expert_width = inner;
  shape.vocabulary = vocabulary;
  TinyModel model(shape);
  add_keys(model, *this);
  add_streams(model, "output_hc_", streams, 1);
  for (std::uint32_t layer = 0; layer < layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    for (const char* part : {"attn_q", "attn_k", "attn_v", "attn_output"})
      model.take(prefix + part + ".weight");
    add_attention(model, prefix, ratios[layer]);
    add_streams(model, prefix + "hc_attn_", streams * (2 + streams), 3);
    add_streams(model, prefix + "hc_ffn_", streams * (2 + streams), 3);
    add_experts(model, prefix, layer < hashed);
  }
  return model;
}

}  // namespace millrace::testing
