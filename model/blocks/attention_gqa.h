// Grouped-query attention over the KV cache (families.md 2.4): q heads share KV heads in
// consecutive groups. The block reads K and V only from the cache, also within the running batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/arch/family.h"
#include "model/blocks/activations.h"
#include "model/blocks/linear.h"
#include "model/kv_cache.h"
#include "model/weights.h"
#include "runtime/base/ids.h"

namespace millrace {

// One token of a batch: where it stands and whose cache it belongs to. Tokens of one sequence are
// in ascending order.
struct TokenPlace {
  TokenId id = 0;
  std::uint32_t position = 0;
  KvCache* kv = nullptr;
};

struct AttentionShape {
  std::uint32_t heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0, rotary = 0;
  float scale = 1;  // of the scores
  float rms_eps = 0;
  RopeKind rope = RopeKind::norm;
  QkNorm qk_norm = QkNorm::none;
};

// Rotations of the batch's positions: row t holds rotary / 2 cosines (sines).
struct RopeRows {
  const float* cosine = nullptr;
  const float* sine = nullptr;
  std::size_t pairs = 0;
};

// Buffers of the block, for batches of up to `tokens` rows; allocated once. Not shared between
// running batches.
class AttentionScratch {
 public:
  AttentionScratch(std::size_t tokens, std::size_t q_columns, std::size_t kv_key_columns,
                   std::size_t kv_value_columns, std::size_t out_columns, std::size_t workers,
                   std::size_t kernel_floats);
  static std::size_t bytes(std::size_t tokens, std::size_t q_columns, std::size_t kv_key_columns,
                           std::size_t kv_value_columns, std::size_t out_columns,
                           std::size_t workers, std::size_t kernel_floats) noexcept;

  std::vector<float> q, k, v;  // tokens x columns
  ActivationRows out;          // tokens x (heads x value_dim)
  std::vector<float> kernel;   // workers x kernel_floats
  std::size_t kernel_floats;
};

// From normed activations (quantized twin up to date where needed) to x += Wo·attention, where x is
// tokens x width with stride width. `projected` takes tokens x width floats. False if a value is
// NaN or infinite.
bool attention_gqa(const BlockContext& context, const AttentionShape& shape,
                   const LayerWeights& weights, LayerIndex layer,
                   std::span<const TokenPlace> tokens, const RopeRows& rope,
                   const ActivationRows& normed, AttentionScratch& scratch, float* projected,
                   float* x);

}  // namespace millrace
