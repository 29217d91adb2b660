// The sizes of BatchWalk's own buffers, in one place for the constructor and for the plan. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "model/blocks/activations.h"
#include "model/model_spec.h"

namespace millrace {

// Columns of the widest matrix that meets activations.
inline std::size_t widest_matrix(const ModelSpec& spec) {
  std::uint64_t widest = spec.head.columns;
  for (LayerIndex layer = 0; layer < spec.layers.size(); ++layer) {
    for (const auto& matrix : spec.layers[layer].matrices)
      if (matrix) widest = std::max(widest, matrix->columns);
    if (spec.experts.experts(layer) == 0) continue;
    const ExpertExtent& expert = spec.experts.at({layer, 0});  // all of a layer have one shape
    widest = std::max({widest, expert.gate.columns, expert.up.columns, expert.down.columns});
  }
  return widest;
}

struct WorkspaceSizes {
  std::size_t tokens, width;
  std::size_t rotary_pairs;   // of all kinds of layers
  std::size_t trunk_ffn;      // widest dense FFN or shared expert
  std::size_t shared_floats;  // the shared expert's output
  std::size_t logits_floats;

  WorkspaceSizes(const ModelSpec& spec, std::size_t tokens_max, std::size_t logits_rows) {
    const Hparams& h = spec.hparams;
    tokens = tokens_max;
    width = h.width;
    rotary_pairs = h.rotary / 2 * (h.compression.ratios.empty() ? 1 : 2);
    trunk_ffn = std::max(h.dense_width_max(), h.shared_width);
    shared_floats = h.shared_width > 0 ? tokens * width : 0;
    logits_floats = std::min(tokens, logits_rows) * h.vocabulary;
  }

  std::uint64_t total_bytes() const noexcept {
    const std::size_t floats = tokens * width + 2 * tokens * rotary_pairs + tokens * trunk_ffn +
                               shared_floats + tokens + logits_floats;
    return floats * sizeof(float) + ActivationRows::bytes(tokens, width) +
           ActivationRows::bytes(tokens, trunk_ffn);
  }
};

}  // namespace millrace
