// The feed-forward half of LayerTensors.
#include <fmt/format.h>

#include <algorithm>

#include "model/layer_tensors.h"

namespace millrace {

Status LayerTensors::feed_forward(std::vector<ExpertExtent>& experts) {
  MILLRACE_TRY(
      vector(VectorRole::ffn_norm, family_.ffn_norm, ".weight", h_.width, Presence::required));
  spec_.experts = h_.moe(layer_);
  if (!spec_.experts) return dense();
  MILLRACE_TRY(moe());
  MILLRACE_ASSIGN(experts, routed_experts());
  return {};
}

Status LayerTensors::dense() {
  const std::uint64_t width = h_.dense_width[layer_];
  if (width == 0)
    return finder_.bad(
        name("ffn_up", ".weight"),
        fmt::format("metadata key {}.feed_forward_length is missing", family_.architecture));
  MILLRACE_TRY(matrix(MatrixRole::ffn_gate, "ffn_gate", h_.width, width));
  MILLRACE_TRY(matrix(MatrixRole::ffn_up, "ffn_up", h_.width, width));
  MILLRACE_TRY(matrix(MatrixRole::ffn_down, "ffn_down", width, h_.width));
  const Presence bias = family_.dense_bias;
  MILLRACE_TRY(vector(VectorRole::ffn_gate_bias, "ffn_gate", ".bias", width, bias));
  MILLRACE_TRY(vector(VectorRole::ffn_up_bias, "ffn_up", ".bias", width, bias));
  return vector(VectorRole::ffn_down_bias, "ffn_down", ".bias", h_.width, bias);
}

Status LayerTensors::moe() {
  MILLRACE_TRY(matrix(MatrixRole::router, "ffn_gate_inp", h_.width, h_.experts));
  MILLRACE_TRY(
      vector(VectorRole::router_bias, "ffn_gate_inp", ".bias", h_.experts, family_.router_bias));
  MILLRACE_TRY(expert_choice());
  MILLRACE_TRY(shared_expert());
  MILLRACE_TRY(expert_scales());
  return expert_biases();
}

// A table of ids by token, or else the bias of the scores.
Status LayerTensors::expert_choice() {
  if (h_.hashed(layer_)) {
    const std::string table = name("ffn_gate_tid2eid", ".weight");
    const TensorInfo* tensor = finder_.find(table);
    // As the embedding, it may have padding rows behind the last token.
    const std::uint64_t rows =
        tensor == nullptr ? h_.vocabulary : std::max<std::uint64_t>(tensor->ne[1], h_.vocabulary);
    MILLRACE_ASSIGN(spec_.hash_table, finder_.numbers(table, h_.experts_used, rows));
    spec_.hash_table->rows = h_.vocabulary;
    return {};
  }
  const bool as_weight = finder_.find(name("exp_probs_b", ".bias")) == nullptr &&
                         finder_.find(name("exp_probs_b", ".weight")) != nullptr;
  return vector(VectorRole::selection_bias, "exp_probs_b", as_weight ? ".weight" : ".bias",
                h_.experts, family_.selection_bias);
}

// It takes the roles of a dense FFN: a layer has one or the other.
Status LayerTensors::shared_expert() {
  const std::uint64_t width = h_.shared_width;
  if (width == 0 && family_.shared == SharedExpert::counted && has("ffn_down_shexp"))
    return finder_.bad(name("ffn_down_shexp", ".weight"),
                       fmt::format("is there, but metadata key {}.expert_shared_count is 0 or "
                                   "missing",
                                   family_.architecture));
  if (width == 0) return {};
  if (family_.shared == SharedExpert::gated)
    MILLRACE_TRY(vector(VectorRole::shared_gate, "ffn_gate_inp_shexp", ".weight", h_.width,
                        Presence::required));
  MILLRACE_TRY(matrix(MatrixRole::ffn_gate, "ffn_gate_shexp", h_.width, width));
  MILLRACE_TRY(matrix(MatrixRole::ffn_up, "ffn_up_shexp", h_.width, width));
  return matrix(MatrixRole::ffn_down, "ffn_down_shexp", width, h_.width);
}

Status LayerTensors::expert_biases() {
  if (family_.expert_bias == Presence::never) return {};
  const std::uint64_t inner = h_.expert_width;
  const Presence bias = family_.expert_bias;
  MILLRACE_TRY(
      vectors(VectorRole::expert_down_bias, "ffn_down_exps", ".bias", h_.width, h_.experts, bias));
  if (finder_.find(name("ffn_gate_up_exps", ".weight")) != nullptr)
    return vectors(VectorRole::expert_gate_up_bias, "ffn_gate_up_exps", ".bias", 2 * inner,
                   h_.experts, bias);
  MILLRACE_TRY(
      vectors(VectorRole::expert_gate_bias, "ffn_gate_exps", ".bias", inner, h_.experts, bias));
  return vectors(VectorRole::expert_up_bias, "ffn_up_exps", ".bias", inner, h_.experts, bias);
}

// Files of any family may have them (NVFP4 does).
Status LayerTensors::expert_scales() {
  MILLRACE_TRY(expert_scale(VectorRole::expert_down_scale, "ffn_down_exps"));
  if (finder_.find(name("ffn_gate_up_exps", ".weight")) != nullptr)
    return expert_scale(VectorRole::expert_gate_up_scale, "ffn_gate_up_exps");
  MILLRACE_TRY(expert_scale(VectorRole::expert_gate_scale, "ffn_gate_exps"));
  return expert_scale(VectorRole::expert_up_scale, "ffn_up_exps");
}

Status LayerTensors::expert_scale(VectorRole role, const char* base) {
  const std::string scale = name(base, ".scale");
  MILLRACE_ASSIGN(const auto extent, finder_.vector(scale, h_.experts, false));
  set(role, extent);
  if (const TensorInfo* weights = finder_.find(name(base, ".weight")))
    optional_.tell_factor(role, weights->type, scale, extent.has_value());
  return {};
}

// Merged (gate, up, down), fused (gate_up, down) or one tensor per expert (files before April
// 2024).
Result<std::vector<ExpertExtent>> LayerTensors::routed_experts() {
  const std::uint64_t inner = h_.expert_width;
  std::vector<ExpertExtent> experts(h_.experts);
  const auto stacked = [&](const char* base, std::uint64_t columns, std::uint64_t rows) {
    return finder_.stacked(name(base, ".weight"), columns, rows, h_.experts);
  };
  MILLRACE_ASSIGN(const auto down, stacked("ffn_down_exps", inner, h_.width));
  if (down.empty() && !has("ffn_gate_exps") && !has("ffn_gate_up_exps")) return separate_experts();
  if (down.empty()) return finder_.missing({name("ffn_down_exps", ".weight")});
  MILLRACE_ASSIGN(const auto fused, stacked("ffn_gate_up_exps", h_.width, 2 * inner));
  MILLRACE_ASSIGN(const auto gate, stacked("ffn_gate_exps", h_.width, inner));
  MILLRACE_ASSIGN(const auto up, stacked("ffn_up_exps", h_.width, inner));
  if (fused.empty() && gate.empty() && up.empty())
    return neither("ffn_gate_exps", "ffn_gate_up_exps");
  if (fused.empty() && (gate.empty() || up.empty()))
    return finder_.bad(name(gate.empty() ? "ffn_gate_exps" : "ffn_up_exps", ".weight"), "missing");
  if (!fused.empty() && (!gate.empty() || !up.empty()))
    return finder_.bad(name("ffn_gate_up_exps", ".weight"),
                       "present beside separate gate or up experts");
  for (ExpertIndex expert = 0; expert < h_.experts; ++expert) {
    ExpertExtent& extent = experts[expert];
    extent.down = down[expert];
    extent.gate = fused.empty() ? gate[expert] : fused[expert];
    extent.up = fused.empty() ? up[expert] : fused[expert];
    if (fused.empty()) continue;
    MILLRACE_TRY(split_gate_up(extent));
  }
  return experts;
}

// Both extents are the fused matrix: gate rows first, then up, or by turns.
Status LayerTensors::split_gate_up(ExpertExtent& expert) {
  const std::uint64_t inner = h_.expert_width;
  const std::string fused = name("ffn_gate_up_exps", ".weight");
  const bool zipped = finder_.find(fused)->zipped;
  const ScaleTile tile = scale_tile(expert.up.type);
  if (tile.rows > 1 && (zipped || inner % tile.rows != 0))
    return finder_.bad(
        fused, fmt::format("gate and up of {} rows share scales of {} rows", inner, tile.rows),
        ErrorCode::unsupported);
  expert.gate.scales.rows /= 2;
  expert.up.scales.rows /= 2;
  expert.gate.rows = expert.up.rows = inner;
  expert.gate.row_step = expert.up.row_step = zipped ? 2 : 1;
  const std::uint64_t before = zipped ? 1 : inner;  // rows
  expert.up.offset_bytes +=
      expert.up.by_inputs ? dtype_row_bytes(expert.up.type, before) : before * expert.up.row_bytes;
  expert.up.scales.offset_bytes +=
      (zipped ? 1 : expert.up.scales.rows) * expert.up.scales.row_bytes;
  return {};
}

Result<std::vector<ExpertExtent>> LayerTensors::separate_experts() {
  if (!has("ffn_down.0") && !has("ffn_gate.0")) return neither("ffn_down_exps", "ffn_down.0");
  std::vector<ExpertExtent> experts(h_.experts);
  for (ExpertIndex expert = 0; expert < h_.experts; ++expert) {
    const auto part = [&](const char* base, std::uint64_t columns, std::uint64_t rows) {
      return finder_.matrix(name(fmt::format("{}.{}", base, expert), ".weight"), columns, rows,
                            true);
    };
    MILLRACE_ASSIGN(const auto gate, part("ffn_gate", h_.width, h_.expert_width));
    MILLRACE_ASSIGN(const auto up, part("ffn_up", h_.width, h_.expert_width));
    MILLRACE_ASSIGN(const auto down, part("ffn_down", h_.expert_width, h_.width));
    experts[expert] = {*gate, *up, *down};
  }
  return experts;
}

}  // namespace millrace
