// Guesses from choices of the past alone: the last token's, or the frequencies of all that came
// before, weighted by what the layer before has just chosen.
#pragma once

#include <vector>

#include "prefetch/predictor.h"

namespace millrace {

// The layer's choice of the last token.
class PreviousTokenPredictor final : public Predictor {
 public:
  const char* name() const noexcept override { return "previous"; }
  void prepare(const PredictorShape& shape) override;
  void chosen(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept override;
  void foreseen(LayerIndex, std::span<const ExpertIndex>) noexcept override {}
  std::uint32_t guess(LayerIndex layer, std::span<ExpertIndex> out) noexcept override;

 private:
  std::uint32_t top_k_ = 0;
  std::vector<ExpertIndex> experts_;   // [layer][rank]
  std::vector<std::uint32_t> counts_;  // [layer]
};

// Decayed counts of each expert, and of each pair (expert of the layer before, expert): the sum
// over the pairs that the present token's choice stands in, with the plain count as the prior.
// Memory: layers * experts^2 floats, 3 MiB for 48 layers of 128 experts.
class TransitionPredictor final : public Predictor {
 public:
  static constexpr float decay = 0.98F;  // per token
  static constexpr float prior = 0.25F;  // weight of the plain count beside one pair

  const char* name() const noexcept override { return "transition"; }
  void prepare(const PredictorShape& shape) override;
  void chosen(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept override;
  void foreseen(LayerIndex, std::span<const ExpertIndex>) noexcept override {}
  std::uint32_t guess(LayerIndex layer, std::span<ExpertIndex> out) noexcept override;

 private:
  float* pairs(LayerIndex layer, ExpertIndex before) noexcept {
    return pairs_.data() + (std::size_t{layer} * experts_ + before) * experts_;
  }
  void learn(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept;

  std::uint32_t experts_ = 0;
  std::vector<float> counts_;        // [layer][expert]
  std::vector<float> pairs_;         // [layer][expert of the layer before][expert]
  std::vector<LayerIndex> before_;   // [layer]: whose experts its pairs begin with
  std::vector<ExpertIndex> latest_;  // the present token's last choice
  LayerIndex latest_layer_ = 0;
  std::vector<float> scores_;
};

// Guesses what will not be chosen if it can: the experts that a layer has not chosen for longest.
// For tests and for measuring what wrong guesses cost.
class WrongPredictor final : public Predictor {
 public:
  const char* name() const noexcept override { return "wrong"; }
  void prepare(const PredictorShape& shape) override;
  void chosen(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept override;
  void foreseen(LayerIndex, std::span<const ExpertIndex>) noexcept override {}
  std::uint32_t guess(LayerIndex layer, std::span<ExpertIndex> out) noexcept override;

 private:
  std::uint32_t experts_ = 0;
  std::uint64_t choices_ = 0;
  std::vector<std::uint64_t> last_;  // [layer][expert]: when it was chosen
};

}  // namespace millrace
