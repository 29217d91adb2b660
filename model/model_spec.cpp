#include "model/model_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "model/arch/registry.h"
#include "model/tensor_finder.h"
#include "runtime/base/log.h"

namespace millrace {

std::uint64_t ModelSpec::expert_bytes() const noexcept {
  std::uint64_t largest = 0;
  for (LayerIndex layer = 0; layer < experts.layers(); ++layer)
    for (ExpertIndex expert = 0; expert < experts.experts(layer); ++expert)
      largest = std::max(largest, experts.at({layer, expert}).bytes());
  return largest;
}

std::uint64_t ModelSpec::trunk_bytes() const noexcept {
  std::uint64_t sum = embedding.bytes() + output_norm.bytes() + (tied_head ? 0 : head.bytes());
  if (rope_factors) sum += rope_factors->bytes();
  for (const LayerSpec& layer : layers) {
    for (const auto& matrix : layer.matrices) sum += matrix ? matrix->bytes() : 0;
    for (const auto& vector : layer.vectors) sum += vector ? vector->bytes() : 0;
  }
  return sum;
}

namespace {

// Reads the tensors of one model, layer by layer.
class SpecBuilder {
 public:
  SpecBuilder(const Checkpoint& checkpoint, ModelSpec& spec)
      : finder_(checkpoint), spec_(spec), h_(spec.hparams), family_(*spec.family) {}

  Status build() {
    MILLRACE_TRY(globals());
    std::vector<std::vector<ExpertExtent>> experts(h_.layers);
    spec_.layers.resize(h_.layers);
    for (LayerIndex layer = 0; layer < h_.layers; ++layer) {
      MILLRACE_TRY(attention(layer, spec_.layers[layer]));
      MILLRACE_TRY(vector(layer, VectorRole::ffn_norm, family_.ffn_norm, ".weight", h_.width,
                          Presence::required));
      spec_.layers[layer].experts = h_.experts > 0;
      if (h_.experts > 0) {
        MILLRACE_TRY(matrix(layer, MatrixRole::router, "ffn_gate_inp", h_.width, h_.experts));
        MILLRACE_ASSIGN(experts[layer], layer_experts(layer));
      } else {
        MILLRACE_TRY(dense(layer));
      }
    }
    spec_.experts = ExpertExtents(std::move(experts));
    return finder_.check_unused();
  }

 private:
  static std::string name(LayerIndex layer, std::string_view base, std::string_view suffix) {
    return fmt::format("blk.{}.{}{}", layer, base, suffix);
  }

  Status globals() {
    const TensorInfo* embedding = finder_.find("token_embd.weight");
    // The table may have padding rows behind the last token.
    const std::uint64_t rows = embedding == nullptr ? h_.vocabulary : embedding->ne[1];
    if (rows < h_.vocabulary)
      return finder_.bad("token_embd.weight",
                         fmt::format("{} rows for a vocabulary of {} tokens", rows, h_.vocabulary));
    MILLRACE_ASSIGN(auto table, finder_.matrix("token_embd.weight", h_.width, rows, true));
    spec_.embedding = *table;
    const TensorInfo* head = finder_.find("output.weight");
    spec_.tied_head = head == nullptr;
    spec_.head = spec_.embedding;
    if (head != nullptr) {
      if (head->ne[1] < h_.vocabulary)
        return finder_.bad("output.weight", fmt::format("{} rows for a vocabulary of {} tokens",
                                                        head->ne[1], h_.vocabulary));
      MILLRACE_ASSIGN(auto output, finder_.matrix("output.weight", h_.width, head->ne[1], true));
      spec_.head = *output;
    }
    spec_.head.rows = h_.vocabulary;
    MILLRACE_ASSIGN(auto norm, finder_.vector("output_norm.weight", h_.width, true));
    spec_.output_norm = *norm;
    MILLRACE_ASSIGN(spec_.rope_factors, finder_.vector("rope_freqs.weight", h_.rotary / 2, false));
    return {};
  }

  Status matrix(LayerIndex layer, MatrixRole role, std::string_view base, std::uint64_t columns,
                std::uint64_t rows) {
    MILLRACE_ASSIGN(spec_.layers[layer].matrices[static_cast<std::size_t>(role)],
                    finder_.matrix(name(layer, base, ".weight"), columns, rows, true));
    return {};
  }

  Status vector(LayerIndex layer, VectorRole role, std::string_view base, std::string_view suffix,
                std::uint64_t count, Presence presence) {
    if (presence == Presence::never) return {};
    MILLRACE_ASSIGN(
        spec_.layers[layer].vectors[static_cast<std::size_t>(role)],
        finder_.vector(name(layer, base, suffix), count, presence == Presence::required));
    return {};
  }

  Status attention(LayerIndex layer, LayerSpec& spec) {
    const std::uint64_t q_rows = std::uint64_t{h_.heads[layer]} * h_.head_dim;
    const std::uint64_t k_rows = std::uint64_t{h_.kv_heads[layer]} * h_.head_dim;
    const std::uint64_t v_rows = std::uint64_t{h_.kv_heads[layer]} * h_.value_dim;
    MILLRACE_TRY(
        vector(layer, VectorRole::attn_norm, "attn_norm", ".weight", h_.width, Presence::required));
    if (finder_.find(name(layer, "attn_qkv", ".weight")) != nullptr) {
      MILLRACE_TRY(fused_qkv(layer, spec, q_rows, k_rows, v_rows));
    } else {
      MILLRACE_TRY(matrix(layer, MatrixRole::attn_q, "attn_q", h_.width, q_rows));
      MILLRACE_TRY(matrix(layer, MatrixRole::attn_k, "attn_k", h_.width, k_rows));
      MILLRACE_TRY(matrix(layer, MatrixRole::attn_v, "attn_v", h_.width, v_rows));
      MILLRACE_TRY(
          vector(layer, VectorRole::attn_q_bias, "attn_q", ".bias", q_rows, family_.qkv_bias));
      MILLRACE_TRY(
          vector(layer, VectorRole::attn_k_bias, "attn_k", ".bias", k_rows, family_.qkv_bias));
      MILLRACE_TRY(
          vector(layer, VectorRole::attn_v_bias, "attn_v", ".bias", v_rows, family_.qkv_bias));
    }
    const std::uint64_t out_columns = std::uint64_t{h_.heads[layer]} * h_.value_dim;
    MILLRACE_TRY(matrix(layer, MatrixRole::attn_output, "attn_output", out_columns, h_.width));
    MILLRACE_TRY(vector(layer, VectorRole::attn_output_bias, "attn_output", ".bias", h_.width,
                        family_.output_bias));
    if (family_.qk_norm == QkNorm::per_head) {
      MILLRACE_TRY(vector(layer, VectorRole::attn_q_norm, "attn_q_norm", ".weight", h_.head_dim,
                          Presence::required));
      MILLRACE_TRY(vector(layer, VectorRole::attn_k_norm, "attn_k_norm", ".weight", h_.head_dim,
                          Presence::required));
    }
    return {};
  }

  // One tensor with the rows of q, then k, then v; its bias likewise.
  Status fused_qkv(LayerIndex layer, LayerSpec& spec, std::uint64_t q_rows, std::uint64_t k_rows,
                   std::uint64_t v_rows) {
    MILLRACE_ASSIGN(auto fused, finder_.matrix(name(layer, "attn_qkv", ".weight"), h_.width,
                                               q_rows + k_rows + v_rows, true));
    const auto part = [&](MatrixRole role, std::uint64_t first, std::uint64_t rows) {
      MatrixExtent extent = *fused;
      extent.offset_bytes += first * extent.row_bytes;
      extent.rows = rows;
      spec.matrices[static_cast<std::size_t>(role)] = extent;
    };
    part(MatrixRole::attn_q, 0, q_rows);
    part(MatrixRole::attn_k, q_rows, k_rows);
    part(MatrixRole::attn_v, q_rows + k_rows, v_rows);
    if (family_.qkv_bias == Presence::never) return {};
    MILLRACE_ASSIGN(auto bias,
                    finder_.vector(name(layer, "attn_qkv", ".bias"), q_rows + k_rows + v_rows,
                                   family_.qkv_bias == Presence::required));
    if (!bias) return {};
    const std::uint64_t element = bias->row_bytes / bias->columns;
    const auto bias_part = [&](VectorRole role, std::uint64_t first, std::uint64_t count) {
      MatrixExtent extent = *bias;
      extent.offset_bytes += first * element;
      extent.columns = count;
      extent.row_bytes = count * element;
      spec.vectors[static_cast<std::size_t>(role)] = extent;
    };
    bias_part(VectorRole::attn_q_bias, 0, q_rows);
    bias_part(VectorRole::attn_k_bias, q_rows, k_rows);
    bias_part(VectorRole::attn_v_bias, q_rows + k_rows, v_rows);
    return {};
  }

  Status dense(LayerIndex layer) {
    const std::uint64_t width = h_.dense_width[layer];
    if (width == 0)
      return finder_.bad(
          name(layer, "ffn_up", ".weight"),
          fmt::format("metadata key {}.feed_forward_length is missing", family_.architecture));
    MILLRACE_TRY(matrix(layer, MatrixRole::ffn_gate, "ffn_gate", h_.width, width));
    MILLRACE_TRY(matrix(layer, MatrixRole::ffn_up, "ffn_up", h_.width, width));
    MILLRACE_TRY(matrix(layer, MatrixRole::ffn_down, "ffn_down", width, h_.width));
    MILLRACE_TRY(
        vector(layer, VectorRole::ffn_gate_bias, "ffn_gate", ".bias", width, Presence::optional));
    MILLRACE_TRY(
        vector(layer, VectorRole::ffn_up_bias, "ffn_up", ".bias", width, Presence::optional));
    return vector(layer, VectorRole::ffn_down_bias, "ffn_down", ".bias", h_.width,
                  Presence::optional);
  }

  // Merged (gate, up, down), fused (gate_up, down) or one tensor per expert (files before April
  // 2024).
  Result<std::vector<ExpertExtent>> layer_experts(LayerIndex layer) {
    const std::uint64_t inner = h_.expert_width;
    std::vector<ExpertExtent> experts(h_.experts);
    MILLRACE_ASSIGN(const auto down, finder_.stacked(name(layer, "ffn_down_exps", ".weight"), inner,
                                                     h_.width, h_.experts));
    if (down.empty()) return separate_experts(layer);
    MILLRACE_ASSIGN(const auto fused, finder_.stacked(name(layer, "ffn_gate_up_exps", ".weight"),
                                                      h_.width, 2 * inner, h_.experts));
    MILLRACE_ASSIGN(const auto gate, finder_.stacked(name(layer, "ffn_gate_exps", ".weight"),
                                                     h_.width, inner, h_.experts));
    MILLRACE_ASSIGN(const auto up, finder_.stacked(name(layer, "ffn_up_exps", ".weight"), h_.width,
                                                   inner, h_.experts));
    if (fused.empty() && (gate.empty() || up.empty()))
      return finder_.bad(name(layer, gate.empty() ? "ffn_gate_exps" : "ffn_up_exps", ".weight"),
                         "missing");
    if (!fused.empty() && (!gate.empty() || !up.empty()))
      return finder_.bad(name(layer, "ffn_gate_up_exps", ".weight"),
                         "present beside separate gate or up experts");
    for (ExpertIndex expert = 0; expert < h_.experts; ++expert) {
      ExpertExtent& extent = experts[expert];
      extent.down = down[expert];
      extent.gate = fused.empty() ? gate[expert] : fused[expert];
      extent.up = fused.empty() ? up[expert] : fused[expert];
      if (fused.empty()) continue;
      extent.gate.rows = extent.up.rows = inner;
      extent.up.offset_bytes += inner * extent.up.row_bytes;
    }
    return experts;
  }

  Result<std::vector<ExpertExtent>> separate_experts(LayerIndex layer) {
    if (finder_.find(name(layer, "ffn_down.0", ".weight")) == nullptr)
      return finder_.bad(name(layer, "ffn_down_exps", ".weight"), "missing");
    std::vector<ExpertExtent> experts(h_.experts);
    for (ExpertIndex expert = 0; expert < h_.experts; ++expert) {
      const auto part = [&](const char* base, std::uint64_t columns, std::uint64_t rows) {
        return finder_.matrix(name(layer, fmt::format("{}.{}", base, expert), ".weight"), columns,
                              rows, true);
      };
      MILLRACE_ASSIGN(const auto gate, part("ffn_gate", h_.width, h_.expert_width));
      MILLRACE_ASSIGN(const auto up, part("ffn_up", h_.width, h_.expert_width));
      MILLRACE_ASSIGN(const auto down, part("ffn_down", h_.expert_width, h_.width));
      experts[expert] = {*gate, *up, *down};
    }
    return experts;
  }

  TensorFinder finder_;
  ModelSpec& spec_;
  const Hparams& h_;
  const FamilySpec& family_;
};

}  // namespace

Result<ModelSpec> read_model_spec(const Checkpoint& checkpoint) {
  ModelSpec spec;
  MILLRACE_ASSIGN(spec.family, find_family(checkpoint.architecture(), checkpoint.display_path()));
  MILLRACE_ASSIGN(spec.hparams, read_hparams(checkpoint, *spec.family));
  spec.files = checkpoint.files();
  MILLRACE_TRY(SpecBuilder(checkpoint, spec).build());
  if (!spec.family->proven)
    log_warning(fmt::format(
        "{}: architecture {} is unverified: its logits were never compared with another engine's",
        checkpoint.display_path(), spec.family->architecture));
  return spec;
}

}  // namespace millrace
