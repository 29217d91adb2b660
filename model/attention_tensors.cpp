// The attention half of LayerTensors.
#include <fmt/format.h>

#include "model/layer_tensors.h"

namespace millrace {

std::string LayerTensors::name(std::string_view base, std::string_view suffix) const {
  return fmt::format("blk.{}.{}{}", layer_, base, suffix);
}

Status LayerTensors::matrix(MatrixRole role, std::string_view base, std::uint64_t columns,
                            std::uint64_t rows) {
  MILLRACE_ASSIGN(const auto extent, finder_.matrix(name(base, ".weight"), columns, rows, true));
  set(role, extent);
  return {};
}

Status LayerTensors::vector(VectorRole role, std::string_view base, std::string_view suffix,
                            std::uint64_t count, Presence presence) {
  return vectors(role, base, suffix, count, 1, presence);
}

Status LayerTensors::vectors(VectorRole role, std::string_view base, std::string_view suffix,
                             std::uint64_t count, std::uint64_t parts, Presence presence) {
  if (presence == Presence::never) return {};
  MILLRACE_ASSIGN(const auto extent, finder_.vectors(name(base, suffix), count, parts,
                                                     presence == Presence::required));
  if (presence == Presence::optional) optional_.tell(role, name(base, suffix), extent.has_value());
  set(role, extent);
  return {};
}

Status LayerTensors::attention() {
  MILLRACE_TRY(vector(VectorRole::attn_norm, "attn_norm", ".weight", h_.width, Presence::required));
  if (h_.attention == AttentionKind::compressed) return compressed();
  if (h_.delta_net(layer_)) return delta_net();
  if (h_.attention == AttentionKind::mla) MILLRACE_TRY(mla());
  else MILLRACE_TRY(gqa());
  const std::uint64_t out_columns = std::uint64_t{h_.heads[layer_]} * h_.value_dim;
  MILLRACE_TRY(matrix(MatrixRole::attn_output, "attn_output", out_columns, h_.width));
  MILLRACE_TRY(
      vector(VectorRole::attn_output_bias, "attn_output", ".bias", h_.width, family_.output_bias));
  return vector(VectorRole::attn_sinks, "attn_sinks", ".weight", h_.heads[layer_], family_.sinks);
}

Status LayerTensors::gqa() {
  const std::uint64_t q_rows =
      std::uint64_t{h_.heads[layer_]} * h_.head_dim * (family_.output_gate ? 2 : 1);
  const std::uint64_t k_rows = std::uint64_t{h_.kv_heads[layer_]} * h_.head_dim;
  const std::uint64_t v_rows = std::uint64_t{h_.kv_heads[layer_]} * h_.value_dim;
  if (finder_.find(name("attn_qkv", ".weight")) != nullptr) {
    MILLRACE_TRY(fused_qkv(q_rows, k_rows, v_rows));
  } else {
    if (!has("attn_q") && !has("attn_k") && !has("attn_v")) return neither("attn_q", "attn_qkv");
    MILLRACE_TRY(matrix(MatrixRole::attn_q, "attn_q", h_.width, q_rows));
    MILLRACE_TRY(matrix(MatrixRole::attn_k, "attn_k", h_.width, k_rows));
    MILLRACE_TRY(matrix(MatrixRole::attn_v, "attn_v", h_.width, v_rows));
    const Presence bias = family_.qkv_bias;
    MILLRACE_TRY(vector(VectorRole::attn_q_bias, "attn_q", ".bias", q_rows, bias));
    MILLRACE_TRY(vector(VectorRole::attn_k_bias, "attn_k", ".bias", k_rows, bias));
    MILLRACE_TRY(vector(VectorRole::attn_v_bias, "attn_v", ".bias", v_rows, bias));
  }
  return qk_norm();
}

Status LayerTensors::qk_norm() {
  if (family_.qk_norm == QkNorm::none) return {};
  const bool row = family_.qk_norm == QkNorm::whole_row;
  const std::uint64_t q_count = std::uint64_t{row ? h_.heads[layer_] : 1} * h_.head_dim;
  const std::uint64_t k_count = std::uint64_t{row ? h_.kv_heads[layer_] : 1} * h_.head_dim;
  const Presence presence = family_.qk_norm_presence;
  MILLRACE_TRY(vector(VectorRole::attn_q_norm, "attn_q_norm", ".weight", q_count, presence));
  return vector(VectorRole::attn_k_norm, "attn_k_norm", ".weight", k_count, presence);
}

// One tensor with the rows of q, then k, then v; its bias likewise.
Status LayerTensors::fused_qkv(std::uint64_t q_rows, std::uint64_t k_rows, std::uint64_t v_rows) {
  MILLRACE_ASSIGN(auto fused, finder_.matrix(name("attn_qkv", ".weight"), h_.width,
                                             q_rows + k_rows + v_rows, true));
  const auto part = [&](MatrixRole role, std::uint64_t first, std::uint64_t rows) {
    MatrixExtent extent = *fused;  // never of a scaled type: only GGUF files have it
    extent.offset_bytes += first * extent.row_bytes;
    extent.rows = rows;
    set(role, extent);
  };
  part(MatrixRole::attn_q, 0, q_rows);
  part(MatrixRole::attn_k, q_rows, k_rows);
  part(MatrixRole::attn_v, q_rows + k_rows, v_rows);
  if (family_.qkv_bias == Presence::never) return {};
  MILLRACE_ASSIGN(auto bias, finder_.vector(name("attn_qkv", ".bias"), q_rows + k_rows + v_rows,
                                            family_.qkv_bias == Presence::required));
  if (family_.qkv_bias == Presence::optional)
    optional_.tell(VectorRole::attn_q_bias, name("attn_qkv", ".bias"), bias.has_value());
  if (!bias) return {};
  const std::uint64_t element = bias->row_bytes / bias->columns;
  const auto bias_part = [&](VectorRole role, std::uint64_t first, std::uint64_t count) {
    MatrixExtent extent = *bias;
    extent.offset_bytes += first * element;
    extent.columns = count;
    extent.row_bytes = count * element;
    set(role, extent);
  };
  bias_part(VectorRole::attn_q_bias, 0, q_rows);
  bias_part(VectorRole::attn_k_bias, q_rows, k_rows);
  bias_part(VectorRole::attn_v_bias, q_rows + k_rows, v_rows);
  return {};
}

Status LayerTensors::mla() {
  const std::uint64_t q_rows = std::uint64_t{h_.heads[layer_]} * h_.head_dim;
  // Whether queries have a latent is decided by the tensor: some files without it have the key.
  if (h_.q_latent > 0 && !has("attn_q") && !has("attn_q_a")) return neither("attn_q_a", "attn_q");
  if (h_.q_latent == 0 || finder_.find(name("attn_q", ".weight")) != nullptr) {
    MILLRACE_TRY(matrix(MatrixRole::attn_q, "attn_q", h_.width, q_rows));
  } else {
    MILLRACE_TRY(matrix(MatrixRole::attn_q_a, "attn_q_a", h_.width, h_.q_latent));
    MILLRACE_TRY(vector(VectorRole::attn_q_a_norm, "attn_q_a_norm", ".weight", h_.q_latent,
                        Presence::required));
    MILLRACE_TRY(matrix(MatrixRole::attn_q_b, "attn_q_b", h_.q_latent, q_rows));
  }
  MILLRACE_TRY(matrix(MatrixRole::attn_kv_a, "attn_kv_a_mqa", h_.width, h_.kv_latent + h_.rotary));
  MILLRACE_TRY(vector(VectorRole::attn_kv_a_norm, "attn_kv_a_norm", ".weight", h_.kv_latent,
                      Presence::required));
  return mla_keys_and_values();
}

// Newer files have the halves of attn_kv_b apart, that of the keys transposed per head; some have
// both forms, and then the halves are taken.
Status LayerTensors::mla_keys_and_values() {
  const std::uint64_t heads = h_.heads[layer_];
  if (!has("attn_k_b") && !has("attn_kv_b")) return neither("attn_kv_b", "attn_k_b");
  if (!has("attn_k_b"))
    return matrix(MatrixRole::attn_kv_b, "attn_kv_b", h_.kv_latent,
                  heads * (h_.nope() + h_.value_dim));
  MILLRACE_ASSIGN(const auto keys,
                  finder_.joined(name("attn_k_b", ".weight"), h_.nope(), h_.kv_latent, heads));
  set(MatrixRole::attn_k_b, keys);
  MILLRACE_ASSIGN(const auto values,
                  finder_.joined(name("attn_v_b", ".weight"), h_.kv_latent, h_.value_dim, heads));
  set(MatrixRole::attn_v_b, values);
  return {};
}

}  // namespace millrace
