// The tensors of compressed attention and of hyper-connections, in the spellings that files have.
#include <fmt/format.h>

#include "model/layer_tensors.h"

namespace millrace {

Result<std::string> LayerTensors::name_of(std::initializer_list<const char*> bases) const {
  std::vector<std::string> names;
  for (const char* base : bases) {
    names.push_back(name(base, ".weight"));
    if (finder_.has(names.back())) return names.back();
  }
  return finder_.missing(names);
}

Status LayerTensors::matrix_of(MatrixRole role, std::initializer_list<const char*> bases,
                               std::uint64_t columns, std::uint64_t rows) {
  MILLRACE_ASSIGN(const std::string name, name_of(bases));
  MILLRACE_ASSIGN(const auto extent, finder_.matrix(name, columns, rows, true));
  set(role, extent);
  return {};
}

Status LayerTensors::vectors_of(VectorRole role, std::initializer_list<const char*> bases,
                                std::uint64_t count, std::uint64_t parts) {
  MILLRACE_ASSIGN(const std::string name, name_of(bases));
  MILLRACE_ASSIGN(const auto extent, finder_.vectors(name, count, parts, true));
  set(role, extent);
  return {};
}

Status LayerTensors::compressed() {
  const Compression& c = h_.compression;
  const std::uint64_t heads = h_.heads[layer_];
  MILLRACE_TRY(matrix(MatrixRole::attn_q_a, "attn_q_a", h_.width, h_.q_latent));
  MILLRACE_TRY(vectors_of(VectorRole::attn_q_a_norm, {"attn_q_a_norm"}, h_.q_latent));
  MILLRACE_TRY(matrix(MatrixRole::attn_q_b, "attn_q_b", h_.q_latent, heads * h_.head_dim));
  MILLRACE_TRY(matrix_of(MatrixRole::attn_kv_a, {"attn_kv", "attn_kv_latent", "attn_kv_a_mqa"},
                         h_.width, h_.head_dim));
  MILLRACE_TRY(
      vectors_of(VectorRole::attn_kv_a_norm, {"attn_kv_a_norm", "attn_kv_norm"}, h_.head_dim));
  MILLRACE_TRY(vectors_of(VectorRole::attn_sinks, {"attn_sinks"}, heads));
  const std::uint64_t rank = std::uint64_t{c.output_groups} * c.output_rank;
  MILLRACE_TRY(matrix(MatrixRole::attn_output_a, "attn_output_a",
                      heads / c.output_groups * h_.head_dim, rank));
  MILLRACE_TRY(matrix(MatrixRole::attn_output, "attn_output_b", rank, h_.width));
  if (c.ratio(layer_) == 0) return {};
  MILLRACE_TRY(compressor());
  return c.indexed(layer_) ? indexer() : Status{};
}

Status LayerTensors::compressor() {
  const std::uint64_t ratio = h_.compression.ratio(layer_);
  const std::uint64_t wide = std::uint64_t{h_.compression.halves(layer_)} * h_.head_dim;
  MILLRACE_TRY(matrix_of(MatrixRole::compressor_kv, {"attn_compressor_kv", "attn_compress_kv"},
                         h_.width, wide));
  MILLRACE_TRY(matrix_of(MatrixRole::compressor_gate,
                         {"attn_compressor_gate", "attn_compress_gate"}, h_.width, wide));
  MILLRACE_TRY(vectors_of(VectorRole::compressor_position,
                          {"attn_compressor_ape", "attn_compress_ape"}, wide, ratio));
  return vectors_of(VectorRole::compressor_norm, {"attn_compressor_norm", "attn_compress_norm"},
                    h_.head_dim);
}

Status LayerTensors::indexer() {
  const Compression& c = h_.compression;
  const std::uint64_t wide = std::uint64_t{c.halves(layer_)} * c.index_dim;
  MILLRACE_TRY(matrix_of(MatrixRole::index_kv,
                         {"indexer_compressor_kv", "indexer.compress_kv", "indexer.compressor_kv"},
                         h_.width, wide));
  MILLRACE_TRY(
      matrix_of(MatrixRole::index_gate,
                {"indexer_compressor_gate", "indexer.compress_gate", "indexer.compressor_gate"},
                h_.width, wide));
  MILLRACE_TRY(
      vectors_of(VectorRole::index_position,
                 {"indexer_compressor_ape", "indexer.compress_ape", "indexer.compressor_ape"}, wide,
                 c.ratio(layer_)));
  MILLRACE_TRY(
      vectors_of(VectorRole::index_norm,
                 {"indexer_compressor_norm", "indexer.compress_norm", "indexer.compressor_norm"},
                 c.index_dim));
  MILLRACE_TRY(matrix(MatrixRole::index_q, "indexer.attn_q_b", h_.q_latent,
                      std::uint64_t{c.index_heads} * c.index_dim));
  return matrix(MatrixRole::index_weights, "indexer.proj", h_.width, c.index_heads);
}

Status LayerTensors::streams() {
  if (h_.streams.count == 1) return {};
  const std::uint64_t all = std::uint64_t{h_.streams.count} * h_.width;
  const std::uint64_t rows = h_.streams.mix_rows();
  constexpr std::uint64_t scales = 3;
  MILLRACE_TRY(matrix(MatrixRole::streams_attn, "hc_attn_fn", all, rows));
  MILLRACE_TRY(vectors_of(VectorRole::streams_attn_base, {"hc_attn_base"}, rows));
  MILLRACE_TRY(vectors_of(VectorRole::streams_attn_scale, {"hc_attn_scale"}, scales));
  MILLRACE_TRY(matrix(MatrixRole::streams_ffn, "hc_ffn_fn", all, rows));
  MILLRACE_TRY(vectors_of(VectorRole::streams_ffn_base, {"hc_ffn_base"}, rows));
  return vectors_of(VectorRole::streams_ffn_scale, {"hc_ffn_scale"}, scales);
}

}  // namespace millrace
