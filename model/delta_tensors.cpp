// The tensors of a gated delta net, in place of those of attention.
#include <fmt/format.h>

#include "model/layer_tensors.h"

namespace millrace {

Status LayerTensors::delta_net() {
  const DeltaSizes& delta = h_.delta;
  MILLRACE_TRY(delta_inputs());
  MILLRACE_TRY(vectors(VectorRole::delta_conv, "ssm_conv1d", ".weight", delta.taps,
                       delta.channels(), Presence::required));
  const std::uint64_t heads = delta.value_heads;
  MILLRACE_TRY(vector(VectorRole::delta_dt, "ssm_dt", ".bias", heads, Presence::required));
  MILLRACE_TRY(vector(VectorRole::delta_decay, "ssm_a", "", heads, Presence::required));
  MILLRACE_TRY(
      vector(VectorRole::delta_norm, "ssm_norm", ".weight", delta.value_dim, Presence::required));
  MILLRACE_TRY(matrix(MatrixRole::attn_output, "ssm_out", delta.values(), h_.width));
  if (!delta.regrouped) return {};
  MatrixExtent& out = *spec_.matrices[static_cast<std::size_t>(MatrixRole::attn_output)];
  out.column_order = {delta.key_heads, delta.value_heads / delta.key_heads};
  if (out.by_inputs)
    return finder_.bad(
        name("ssm_out", ".weight"),
        fmt::format("type {}: its columns cannot be put in order", dtype_info(out.type).name),
        ErrorCode::unsupported);
  const std::uint64_t unit =
      is_scaled(out.type) ? scale_tile(out.type).columns : dtype_info(out.type).block_elems;
  if (delta.value_dim % unit != 0)
    return finder_.bad(
        name("ssm_out", ".weight"),
        fmt::format("heads of {} values in blocks of {}: they cannot be put in order",
                    delta.value_dim, unit),
        ErrorCode::unsupported);
  return {};
}

// What is projected from the layer's input. Where value heads are grouped by key heads, strengths
// and decays lie in one matrix, and in older files the rest in another one.
Status LayerTensors::delta_inputs() {
  const DeltaSizes& delta = h_.delta;
  const bool grouped = family_.delta_nets == DeltaNets::grouped_heads;
  if (grouped && finder_.find(name("ssm_in", ".weight")) != nullptr) {
    MILLRACE_TRY(matrix(MatrixRole::delta_in, "ssm_in", h_.width,
                        std::uint64_t{delta.channels()} + delta.values()));
  } else {
    if (grouped && !has("attn_qkv") && !has("attn_gate")) return neither("attn_qkv", "ssm_in");
    MILLRACE_TRY(matrix(MatrixRole::delta_qkv, "attn_qkv", h_.width, delta.channels()));
    MILLRACE_TRY(matrix(MatrixRole::delta_gate, "attn_gate", h_.width, delta.values()));
  }
  const std::uint64_t heads = delta.value_heads;
  if (grouped) return matrix(MatrixRole::delta_ba, "ssm_ba", h_.width, 2 * heads);
  MILLRACE_TRY(matrix(MatrixRole::delta_beta, "ssm_beta", h_.width, heads));
  return matrix(MatrixRole::delta_alpha, "ssm_alpha", h_.width, heads);
}

}  // namespace millrace
