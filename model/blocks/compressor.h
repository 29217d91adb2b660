// The compressor of a layer: pools the positions of each block of `ratio` into one row, with a
// softmax over the positions in each channel. For a token p with normed input x:
//   values_p = W_kv·x    scores_p = W_gate·x + position_(p mod ratio)
// and when a block is complete, channel j of its row is the softmax-weighted sum over its positions
// (KernelTable::softmax_pool, positions ascending). With two halves the positions of the block
// before come first, with their channels j, and the block's own give channels columns + j. The row
// is normed, the tail of it rotated at the block's first position, and cached.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/blocks/activations.h"
#include "model/blocks/attention_common.h"
#include "model/weights.h"

namespace millrace {

struct Compressor {
  CompressedRows& (KvCache::*rows)(LayerIndex) noexcept;  // which of the cache's it fills
  MatrixRole values, scores;
  VectorRole position, norm;
};
inline constexpr Compressor pooled_compressor = {
    &KvCache::pooled, MatrixRole::compressor_kv, MatrixRole::compressor_gate,
    VectorRole::compressor_position, VectorRole::compressor_norm};
inline constexpr Compressor index_compressor = {&KvCache::index, MatrixRole::index_kv,
                                                MatrixRole::index_gate, VectorRole::index_position,
                                                VectorRole::index_norm};

// Buffers for up to `tokens` tokens at once; allocated once.
struct CompressorScratch {
  // `channels`, `columns`: the most that a compressor of the model has.
  CompressorScratch(std::size_t tokens, std::size_t channels, std::size_t columns,
                    std::size_t rotary, std::size_t workers);
  static std::size_t bytes(std::size_t tokens, std::size_t channels, std::size_t columns,
                           std::size_t rotary, std::size_t workers) noexcept;

  std::vector<float> values, scores;  // tokens x channels
  std::vector<float> pooled;          // tokens x columns
  std::vector<float> rotation;        // workers x rotary: cosines, sines
};

struct CompressorShape {
  std::uint32_t rotary = 0;
  float rms_eps = 0;
};

// Takes up tokens whose normed inputs are rows first .. of `normed` (quantized twin up to date
// where needed): afterwards the rows of all blocks that they complete are cached. Bits do not
// depend on how a sequence is cut into calls.
void compress(const BlockContext& context, const Compressor& compressor,
              const CompressorShape& shape, const LayerWeights& weights, LayerIndex layer,
              std::span<const TokenPlace> tokens, std::size_t first, const ActivationRows& normed,
              const RopeRows& rope, CompressorScratch& scratch);

}  // namespace millrace
