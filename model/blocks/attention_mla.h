// Multi-head latent attention (families.md 7.3): keys and values of all heads come from one latent
// per token, and only that and a rotated key are cached. Always in the absorbed form, in prefill as
// in decode: each head's query is taken into the latent's space, so the cache is read as it is,
// by all heads at once, and a head's values are made from its mixture of latents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/blocks/activations.h"
#include "model/blocks/attention_common.h"
#include "model/weights.h"

namespace millrace {

struct MlaShape {
  std::uint32_t heads = 0;
  std::uint32_t nope = 0;       // of a head's query: the part without rotation, in front
  std::uint32_t rotary = 0;     //                    the rotated part, behind it
  std::uint32_t value_dim = 0;  // of a head
  std::uint32_t q_latent = 0;   // 0: queries come from one matrix
  std::uint32_t kv_latent = 0;
  float scale = 1;  // of the scores
  float rms_eps = 0;

  std::size_t head_dim() const noexcept { return std::size_t{nope} + rotary; }
  std::size_t key() const noexcept { return std::size_t{kv_latent} + rotary; }  // a cached row
};

// Buffers of the block, for batches of up to `tokens` rows; allocated once. Not shared between
// running batches. Queries in the latent's space are large (heads x key values per token), so a
// batch goes through in parts.
class MlaScratch {
 public:
  // `widest`: the largest number of heads that a layer has.
  MlaScratch(const MlaShape& widest, std::size_t tokens, std::size_t workers);
  static std::size_t bytes(const MlaShape& widest, std::size_t tokens,
                           std::size_t workers) noexcept;

  std::size_t part;             // tokens that go through together
  ActivationRows q_latent;      // tokens x q_latent
  std::vector<float> latent;    // tokens x key
  ActivationRows query;         // (part x heads) x head_dim
  std::vector<float> absorbed;  // (part x heads) x key
  ActivationRows mixed;         // (part x heads) x kv_latent
  ActivationRows out;           // tokens x (heads x value_dim)
  std::vector<float> row;       // workers x kv_latent
  std::vector<float> kernel;
};

// From normed activations (quantized twin up to date where needed) to tokens x width values of
// Wo·attention in `projected`. False if a value is NaN or infinite.
bool attention_mla(const BlockContext& context, const MlaShape& shape, const LayerWeights& weights,
                   LayerIndex layer, std::span<const TokenPlace> tokens, const RopeRows& rope,
                   const ActivationRows& normed, MlaScratch& scratch, float* projected);

}  // namespace millrace
