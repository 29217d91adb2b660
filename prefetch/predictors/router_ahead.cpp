#include "prefetch/predictors/router_ahead.h"

#include <algorithm>

namespace millrace {

void RouterAheadPredictor::prepare(const PredictorShape& shape) {
  top_k_ = shape.top_k;
  experts_.assign(std::size_t{shape.layers} * top_k_, 0);
  counts_.assign(shape.layers, 0);
}

// Its turn is over: what was foreseen is of no use any more.
void RouterAheadPredictor::chosen(LayerIndex layer, std::span<const ExpertIndex>) noexcept {
  counts_[layer] = 0;
}

void RouterAheadPredictor::foreseen(LayerIndex layer,
                                    std::span<const ExpertIndex> experts) noexcept {
  const std::size_t count = std::min<std::size_t>(experts.size(), top_k_);
  std::copy_n(experts.begin(), count, experts_.begin() + std::ptrdiff_t{layer} * top_k_);
  counts_[layer] = static_cast<std::uint32_t>(count);
}

std::uint32_t RouterAheadPredictor::guess(LayerIndex layer, std::span<ExpertIndex> out) noexcept {
  const std::size_t count = std::min<std::size_t>(out.size(), counts_[layer]);
  std::copy_n(experts_.begin() + std::ptrdiff_t{layer} * top_k_, count, out.begin());
  return static_cast<std::uint32_t>(count);
}

}  // namespace millrace
