// Gated delta net (families.md 10.2): a layer that keeps, instead of keys and values, a matrix per
// value head, which decays and is corrected with each token. Tokens go through one after another,
// in prefill too, so their bits do not depend on the batch.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/arch/family.h"
#include "model/blocks/activations.h"
#include "model/blocks/attention_common.h"
#include "model/hparams.h"
#include "model/weights.h"

namespace millrace {

struct DeltaShape {
  DeltaSizes sizes;  // regrouped: inputs are in groups, outputs tiled
  DeltaNets heads = DeltaNets::grouped_heads;
  float rms_eps = 0;
};

// Buffers of the block, for batches of up to `tokens` rows; allocated once. Not shared between
// running batches.
class DeltaScratch {
 public:
  DeltaScratch(const DeltaShape& shape, std::size_t tokens, std::size_t workers);
  static std::size_t bytes(const DeltaShape& shape, std::size_t tokens,
                           std::size_t workers) noexcept;

  std::vector<float> joined;         // tokens x (channels + values), of files with ssm_in; or gates
  std::vector<float> pair;           // tokens x 2 value heads, of files with ssm_ba
  std::vector<float> mixed;          // tokens x channels: q, k, v before the convolution
  std::vector<float> turned;         // the same behind it
  std::vector<float> beta;           // tokens x value heads: write strengths
  std::vector<float> decay;          // tokens x value heads
  std::vector<float> head;           // workers x value_dim: output of a head
  ActivationRows out;                // tokens x values; before that their gates
  std::vector<std::uint32_t> order;  // tokens, those of a sequence behind each other
  std::vector<std::uint32_t> runs;   // where in `order` a sequence begins; behind the last its end
};

// From normed activations (quantized twin up to date where needed) to tokens x width values of the
// layer's output in `projected`. False if a value is NaN or infinite.
bool delta_net(const BlockContext& context, const DeltaShape& shape, const LayerWeights& weights,
               LayerIndex layer, std::span<const TokenPlace> tokens, const ActivationRows& normed,
               DeltaScratch& scratch, float* projected);

}  // namespace millrace
