// What the attention blocks share: the places of a batch's tokens, their rotations, the buffers'
// sizes, and the reading of the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/blocks/activations.h"
#include "model/blocks/linear.h"
#include "model/sequence_state.h"
#include "model/weights.h"
#include "runtime/base/ids.h"

namespace millrace {

// One token of a batch: where it stands and whose state it belongs to. Tokens of one sequence are
// in ascending order, without gaps.
struct TokenPlace {
  TokenId id = 0;
  std::uint32_t position = 0;
  SequenceState* state = nullptr;
};

// Rotations of the batch's positions: row t holds rotary / 2 cosines (sines). For other positions:
// rope_row() with theta and magnitude.
struct RopeRows {
  const float* cosine = nullptr;
  const float* sine = nullptr;
  std::size_t pairs = 0;
  const double* theta = nullptr;
  double magnitude = 1;

  const float* cosines(std::size_t t) const noexcept { return cosine + t * pairs; }
  const float* sines(std::size_t t) const noexcept { return sine + t * pairs; }
};

inline constexpr std::size_t attention_token_grain = 8;  // tokens per range in row-wise parts

// Makes room in the caches of the batch for its positions of a layer.
void make_cache_room(std::span<const TokenPlace> tokens, LayerIndex layer);

// The kernel that reads a cache of this type.
void (*attention_kernel(const KernelTable& kernels, KvType type) noexcept)(const AttentionArgs&);

// Queries of a batch against a layer of the cache.
struct CacheQuery {
  std::uint32_t heads = 0, kv_heads = 0;
  std::uint32_t head_dim = 0, value_dim = 0;  // as the cache has them
  std::uint32_t window = 0;                   // positions seen, the own one included; 0: all
  float scale = 1;                            // of the scores
  const float* sinks = nullptr;               // per head, or none
  const float* q = nullptr;                   // tokens x heads x head_dim
  float* out = nullptr;                       // token t at out + t * out_stride: heads x value_dim
  std::size_t out_stride = 0;
  float* scratch = nullptr;  // scratch_floats per worker: attention_scratch_floats(), or
  std::size_t scratch_floats = attention_scratch_floats();  // attention_run_floats() for runs
};
void attend(const BlockContext& context, LayerIndex layer, std::span<const TokenPlace> tokens,
            const CacheQuery& query);

// projected = Wo·out (+ bias) for the first `count` rows; quantizes them where Wo takes that. False
// if a value is NaN or infinite.
bool project_output(const BlockContext& context, const LayerWeights& weights, ActivationRows& out,
                    std::size_t count, float* projected);

}  // namespace millrace
