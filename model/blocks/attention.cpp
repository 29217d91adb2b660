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
          .qk_norm = family.qk_norm};
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

GqaShape widest_gqa(const Hparams& h, const FamilySpec& family) {
  return gqa_shape(h, family, h.heads_max(), h.kv_heads_max(), 0);
}

}  // namespace

Attention::Attention(const Hparams& hparams, const FamilySpec& family, std::size_t tokens_max,
                     unsigned workers)
    : h_(hparams), family_(family) {
  if (h_.attention == AttentionKind::mla)
    mla_.emplace(mla_shape(h_, h_.heads_max()), tokens_max, workers);
  else gqa_.emplace(widest_gqa(h_, family), tokens_max, workers);
}

std::uint64_t Attention::bytes(const Hparams& hparams, const FamilySpec& family,
                               std::size_t tokens_max, unsigned workers) noexcept {
  if (hparams.attention == AttentionKind::mla)
    return MlaScratch::bytes(mla_shape(hparams, hparams.heads_max()), tokens_max, workers);
  return GqaScratch::bytes(widest_gqa(hparams, family), tokens_max, workers);
}

Rounding Attention::rounding(const BlockContext& context, const LayerWeights& weights) noexcept {
  constexpr std::array first = {MatrixRole::attn_q, MatrixRole::attn_k, MatrixRole::attn_v,
                                MatrixRole::attn_q_a, MatrixRole::attn_kv_a};
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
  if (mla_)
    return attention_mla(context, mla_shape(h_, h_.heads[layer]), weights, layer, tokens, rope,
                         normed, *mla_, projected);
  return attention_gqa(
      context, gqa_shape(h_, family_, h_.heads[layer], h_.kv_heads[layer], h_.window(layer)),
      weights, layer, tokens, rope, normed, *gqa_, projected);
}

}  // namespace millrace
