#include "model/blocks/attention.h"

#include <algorithm>
#include <array>

namespace millrace {

namespace {

GqaShape gqa_shape(const Hparams& h, const FamilySpec& family, std::uint32_t heads,
                   std::uint32_t kv_heads, std::uint32_t window) {
  return {.heads = heads,
          .kv_heads = kv_heads,
          .head_dim = h.head_dim,
          .value_dim = h.value_dim,
          .rotary = h.rotary,
          .window = window,
          .scale = h.attention_scale,
          .clamp = h.clamp_qkv,
          .rms_eps = h.rms_eps,
          .rope = family.rope,
          .split_pairs = h.split_pairs,
          .qk_norm = family.qk_norm,
          .output_gate = family.output_gate};
}

DeltaShape delta_shape(const Hparams& h, const FamilySpec& family) {
  const DeltaNets heads = h.delta.regrouped ? DeltaNets::grouped_heads : family.delta_nets;
  return {.sizes = h.delta, .heads = heads, .rms_eps = h.rms_eps};
}

MlaShape mla_shape(const Hparams& h, std::uint32_t heads) {
  return {.heads = heads,
          .nope = h.nope(),
          .rotary = h.rotary,
          .value_dim = h.value_dim,
          .q_latent = h.q_latent,
          .kv_latent = h.kv_latent,
          .scale = h.attention_scale,
          .rms_eps = h.rms_eps};
}

// `ratio` and `indexed` are a layer's.
CompressedShape compressed_shape(const Hparams& h, std::uint32_t ratio, bool indexed) {
  const Compression& c = h.compression;
  return {.heads = h.heads[0],
          .head_dim = h.head_dim,
          .rotary = h.rotary,
          .q_latent = h.q_latent,
          .window = h.window(0),
          .groups = c.output_groups,
          .rank = c.output_rank,
          .ratio = ratio,
          .indexed = indexed,
          .index_heads = c.index_heads,
          .index_dim = c.index_dim,
          .index_top_k = c.index_top_k,
          .scale = h.attention_scale,
          .rms_eps = h.rms_eps};
}

CompressedShape widest_compressed(const Hparams& h) {
  std::uint32_t ratio = 0;
  bool indexed = false;
  for (LayerIndex layer = 0; layer < h.layers; ++layer) {
    ratio = std::max(ratio, h.compression.ratio(layer));
    indexed |= h.compression.indexed(layer);
  }
  return compressed_shape(h, ratio, indexed);
}

// The most that a compressor of the model has.
std::size_t compressor_channels(const Hparams& h) {
  std::size_t channels = 0;
  for (LayerIndex layer = 0; layer < h.layers; ++layer) {
    const CompressedLayouts layouts = compressed_layouts(h, layer, 0);
    channels = std::max({channels, layouts.pooled.channels(), layouts.index.channels()});
  }
  return channels;
}

GqaShape widest_gqa(const Hparams& h, const FamilySpec& family) {
  return gqa_shape(h, family, h.heads_max(), h.kv_heads_max(), 0);
}

}  // namespace

Attention::Attention(const Hparams& hparams, const FamilySpec& family, std::size_t tokens_max,
                     unsigned workers)
    : h_(hparams), family_(family) {
  if (h_.attention == AttentionKind::mla)
    mla_.emplace(mla_shape(h_, h_.heads_max()), tokens_max, workers);
  else if (h_.attention == AttentionKind::compressed)
    compressed_.emplace(widest_compressed(h_), compressor_channels(h_), tokens_max, workers);
  else gqa_.emplace(widest_gqa(h_, family), tokens_max, workers);
  if (family.delta_nets != DeltaNets::none)
    delta_.emplace(delta_shape(h_, family), tokens_max, workers);
}

std::uint64_t Attention::bytes(const Hparams& hparams, const FamilySpec& family,
                               std::size_t tokens_max, unsigned workers) noexcept {
  if (hparams.attention == AttentionKind::mla)
    return MlaScratch::bytes(mla_shape(hparams, hparams.heads_max()), tokens_max, workers);
  if (hparams.attention == AttentionKind::compressed)
    return CompressedScratch::bytes(widest_compressed(hparams), compressor_channels(hparams),
                                    tokens_max, workers);
  const std::uint64_t delta =
      family.delta_nets == DeltaNets::none
          ? 0
          : DeltaScratch::bytes(delta_shape(hparams, family), tokens_max, workers);
  return delta + GqaScratch::bytes(widest_gqa(hparams, family), tokens_max, workers);
}

Rounding Attention::rounding(const BlockContext& context, const LayerWeights& weights) noexcept {
  constexpr std::array first = {
      MatrixRole::attn_q,          MatrixRole::attn_k,      MatrixRole::attn_v,
      MatrixRole::attn_q_a,        MatrixRole::attn_kv_a,   MatrixRole::compressor_kv,
      MatrixRole::compressor_gate, MatrixRole::index_kv,    MatrixRole::index_gate,
      MatrixRole::delta_qkv,       MatrixRole::delta_gate,  MatrixRole::delta_in,
      MatrixRole::delta_beta,      MatrixRole::delta_alpha, MatrixRole::delta_ba};
  Rounding all = Rounding::none;
  for (const MatrixRole role : first) {
    const Matrix& matrix = weights.matrix(role);
    if (matrix.present()) all = all | context.rounding(matrix.type);
  }
  return all;
}

bool Attention::run(const BlockContext& context, LayerIndex layer, const LayerWeights& weights,
                    std::span<const TokenPlace> tokens, const RopeRows& rope,
                    const ActivationRows& normed, float* projected) {
  if (h_.delta_net(layer))
    return delta_net(context, delta_shape(h_, family_), weights, layer, tokens, normed, *delta_,
                     projected);
  if (mla_)
    return attention_mla(context, mla_shape(h_, h_.heads[layer]), weights, layer, tokens, rope,
                         normed, *mla_, projected);
  if (compressed_)
    return attention_compressed(
        context, compressed_shape(h_, h_.compression.ratio(layer), h_.compression.indexed(layer)),
        weights, layer, tokens, rope, normed, *compressed_, projected);
  return attention_gqa(
      context, gqa_shape(h_, family_, h_.heads[layer], h_.kv_heads[layer], h_.window(layer)),
      weights, layer, tokens, rope, normed, *gqa_, projected);
}

}  // namespace millrace
