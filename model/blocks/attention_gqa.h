// Grouped-query attention over the KV cache (families.md 2.4): q heads share KV heads in
// consecutive groups. The block reads K and V only from the cache, also within the running batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/arch/family.h"
#include "model/blocks/activations.h"
#include "model/blocks/attention_common.h"
#include "model/weights.h"

namespace millrace {

struct GqaShape {
  std::uint32_t heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0, rotary = 0;
  std::uint32_t window = 0;  // positions seen; 0: all
  float scale = 1;           // of the scores
  float clamp = 0;           // of q, k and v after their projections; 0: none
  float rms_eps = 0;
  RopeKind rope = RopeKind::norm;
  bool split_pairs = false;  // q and k come with the firsts of a head's pairs before the seconds
  QkNorm qk_norm = QkNorm::none;
  bool output_gate = false;  // attn_q: per head the query, then as many values of a gate
};

// Buffers of the block, for batches of up to `tokens` rows of the largest shape; allocated once.
// Not shared between running batches.
class GqaScratch {
 public:
  // `widest`: the largest number of heads and of KV heads that a layer has.
  GqaScratch(const GqaShape& widest, std::size_t tokens, std::size_t workers);
  static std::size_t bytes(const GqaShape& widest, std::size_t tokens,
                           std::size_t workers) noexcept;

  std::vector<float> q, k, v;  // tokens x columns
  std::vector<float> gated;    // tokens x (heads x 2 head_dim): queries and gates as projected
  ActivationRows out;          // tokens x (heads x value_dim)
  std::vector<float> kernel;
};

// From normed activations (quantized twin up to date where needed) to tokens x width values of
// Wo·attention in `projected`. False if a value is NaN or infinite.
bool attention_gqa(const BlockContext& context, const GqaShape& shape, const LayerWeights& weights,
                   LayerIndex layer, std::span<const TokenPlace> tokens, const RopeRows& rope,
                   const ActivationRows& normed, GqaScratch& scratch, float* projected);

}  // namespace millrace
