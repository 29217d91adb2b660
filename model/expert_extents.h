// Where each routed expert lies on disk: three slices (gate, up, down) per (layer, expert). Built
// by the family from the checkpoint's tensors (merged 3-D, fused gate_up, or old per-expert ones);
// then read-only.
#pragma once

#include <cstdint>
#include <vector>

#include "model/tensor.h"
#include "runtime/base/check.h"
#include "runtime/base/ids.h"

namespace millrace {

struct ExpertExtent {
  MatrixExtent gate, up, down;
  std::uint64_t bytes() const noexcept { return gate.bytes() + up.bytes() + down.bytes(); }
};

class ExpertExtents {
 public:
  ExpertExtents() = default;
  // Layers without routed experts have an empty row.
  explicit ExpertExtents(std::vector<std::vector<ExpertExtent>> layers)
      : layers_(std::move(layers)) {}
  std::uint32_t layers() const noexcept { return static_cast<std::uint32_t>(layers_.size()); }
  std::uint32_t experts(LayerIndex layer) const noexcept {
    return static_cast<std::uint32_t>(layers_[layer].size());
  }
  const ExpertExtent& at(ExpertKey key) const noexcept {
    MILLRACE_DCHECK(key.layer < layers_.size() && key.expert < layers_[key.layer].size());
    return layers_[key.layer][key.expert];
  }
  std::uint64_t pool_bytes() const noexcept {
    std::uint64_t sum = 0;
    for (const auto& layer : layers_)
      for (const ExpertExtent& expert : layer) sum += expert.bytes();
    return sum;
  }

 private:
  std::vector<std::vector<ExpertExtent>> layers_;
};

}  // namespace millrace
