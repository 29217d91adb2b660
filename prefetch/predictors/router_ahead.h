// What a later layer's router chooses from the present state: the residual stream changes little
// from one layer to the next.
#pragma once

#include <vector>

#include "prefetch/predictor.h"

namespace millrace {

class RouterAheadPredictor final : public Predictor {
 public:
  explicit RouterAheadPredictor(std::uint32_t layers_ahead) : ahead_(layers_ahead) {}
  const char* name() const noexcept override { return ahead_ == 1 ? "router1" : "router2"; }
  void prepare(const PredictorShape& shape) override;
  std::uint32_t layers_ahead() const noexcept override { return ahead_; }
  void chosen(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept override;
  void foreseen(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept override;
  std::uint32_t guess(LayerIndex layer, std::span<ExpertIndex> out) noexcept override;

 private:
  std::uint32_t ahead_;
  std::uint32_t top_k_ = 0;
  std::vector<ExpertIndex> experts_;   // [layer][rank]
  std::vector<std::uint32_t> counts_;  // [layer]: known ranks; 0: nothing foreseen
};

}  // namespace millrace
