// Attention over one row of keys and values that all heads share (DeepSeek-V4): the rows of the
// last `window` positions, and behind them one row for each older block of positions, pooled by a
// compressor. Where blocks are short, a token looks at the best of them only (row_choice.h). The
// tail of each row is rotated; since the values carry that rotation too, each head's output is
// turned back by the token's own. The output goes through two matrices: one per group of heads,
// then one over all groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/blocks/activations.h"
#include "model/blocks/attention_common.h"
#include "model/blocks/compressor.h"
#include "model/blocks/row_choice.h"
#include "model/weights.h"

namespace millrace {

// All layers of a model have the same heads.
struct CompressedShape {
  std::uint32_t heads = 0;
  std::uint32_t head_dim = 0;  // of queries and rows
  std::uint32_t rotary = 0;    // the last values of them
  std::uint32_t q_latent = 0;
  std::uint32_t window = 0;
  std::uint32_t groups = 1;  // of heads
  std::uint32_t rank = 0;    // a group's values between the output's matrices
  std::uint32_t ratio = 0;   // positions of a pooled row; 0: none
  bool indexed = false;      // rows are chosen
  std::uint32_t index_heads = 0, index_dim = 0, index_top_k = 0;
  float scale = 1;  // of the scores
  float rms_eps = 0;

  std::size_t columns() const noexcept { return std::size_t{heads} * head_dim; }
};

// Buffers of the block; allocated once. Not shared between running batches. Queries are large
// (heads x head_dim), so a batch goes through in parts.
class CompressedScratch {
 public:
  // `shape`: as of a layer with everything that some layer of the model has; `channels`: the most
  // that one of its compressors has.
  CompressedScratch(const CompressedShape& shape, std::size_t channels, std::size_t tokens,
                    std::size_t workers);
  static std::size_t bytes(const CompressedShape& shape, std::size_t channels, std::size_t tokens,
                           std::size_t workers) noexcept;

  std::size_t part;                   // tokens that go through together
  ActivationRows q_latent;            // part x q_latent
  std::vector<float> row;             // part x head_dim
  std::vector<float> query;           // part x (heads x head_dim)
  ActivationRows out;                 // (part x groups) x a group's heads x head_dim
  ActivationRows low;                 // part x (groups x rank)
  CompressorScratch compressor;       // for `part` tokens
  std::vector<float> index_query;     // part x (index_heads x index_dim), and slack
  std::vector<float> index_weights;   // part x index_heads
  std::vector<float> index_products;  // workers x row_choice_scratch_floats()
  std::vector<std::uint32_t> chosen;  // part x top_k
  std::vector<float> gathered;        // workers x top_k rows of any type
  std::vector<float> turned;          // workers x rotary / 2: sines of the rotation back
  std::vector<float> ones;            // head_dim: a norm without weights
  std::vector<float> kernel;
};

// From normed activations (quantized twin up to date where needed) to tokens x width values of the
// output in `projected`. False if a value is NaN or infinite.
bool attention_compressed(const BlockContext& context, const CompressedShape& shape,
                          const LayerWeights& weights, LayerIndex layer,
                          std::span<const TokenPlace> tokens, const RopeRows& rope,
                          const ActivationRows& normed, CompressedScratch& scratch,
                          float* projected);

}  // namespace millrace
