#include "prefetch/predictors/history.h"

#include <algorithm>

namespace millrace {
namespace {

// The `out.size()` ids with the highest scores, best first; equal ones by id. Scores at or below
// `least` are not guessed.
template <class Score>
std::uint32_t best_of(std::span<const Score> scores, Score least, std::span<ExpertIndex> out) {
  std::size_t count = 0;
  for (ExpertIndex id = 0; id < scores.size(); ++id) {
    if (!(scores[id] > least)) continue;
    if (count == out.size() && !(scores[id] > scores[out[count - 1]])) continue;
    std::size_t at = count < out.size() ? count++ : count - 1;
    for (; at > 0 && scores[id] > scores[out[at - 1]]; --at) out[at] = out[at - 1];
    out[at] = id;
  }
  return static_cast<std::uint32_t>(count);
}

}  // namespace

void PreviousTokenPredictor::prepare(const PredictorShape& shape) {
  top_k_ = shape.top_k;
  experts_.assign(std::size_t{shape.layers} * top_k_, 0);
  counts_.assign(shape.layers, 0);
}

void PreviousTokenPredictor::chosen(LayerIndex layer,
                                    std::span<const ExpertIndex> experts) noexcept {
  const std::size_t count = std::min<std::size_t>(experts.size(), top_k_);
  std::copy_n(experts.begin(), count, experts_.begin() + std::ptrdiff_t{layer} * top_k_);
  counts_[layer] = static_cast<std::uint32_t>(count);
}

std::uint32_t PreviousTokenPredictor::guess(LayerIndex layer, std::span<ExpertIndex> out) noexcept {
  const std::size_t count = std::min<std::size_t>(out.size(), counts_[layer]);
  std::copy_n(experts_.begin() + std::ptrdiff_t{layer} * top_k_, count, out.begin());
  return static_cast<std::uint32_t>(count);
}

void TransitionPredictor::prepare(const PredictorShape& shape) {
  experts_ = shape.experts;
  counts_.assign(std::size_t{shape.layers} * experts_, 0);
  pairs_.assign(std::size_t{shape.layers} * experts_ * experts_, 0);
  before_.assign(shape.layers, 0);
  scores_.assign(experts_, 0);
  latest_.clear();
  latest_.reserve(shape.top_k);
  latest_layer_ = 0;
}

void TransitionPredictor::chosen(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept {
  learn(layer, experts);
  latest_.assign(experts.begin(), experts.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                        experts.size(), latest_.capacity())));
  latest_layer_ = layer;
}

void TransitionPredictor::learn(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept {
  const std::span counts(counts_.data() + std::size_t{layer} * experts_, experts_);
  for (float& count : counts) count *= decay;
  for (const ExpertIndex expert : experts) counts[expert] += 1;
  if (latest_.empty() || latest_layer_ >= layer) return;
  before_[layer] = latest_layer_;
  for (const ExpertIndex before : latest_) {
    const std::span row(pairs(layer, before), experts_);
    for (float& count : row) count *= decay;
    for (const ExpertIndex expert : experts) row[expert] += 1;
  }
}

std::uint32_t TransitionPredictor::guess(LayerIndex layer, std::span<ExpertIndex> out) noexcept {
  for (std::uint32_t id = 0; id < experts_; ++id)
    scores_[id] = prior * counts_[std::size_t{layer} * experts_ + id];
  if (latest_layer_ < layer && before_[layer] == latest_layer_)
    for (const ExpertIndex before : latest_) {
      const float* const row = pairs(layer, before);
      for (std::uint32_t id = 0; id < experts_; ++id) scores_[id] += row[id];
    }
  return best_of<float>(scores_, 0.0F, out);
}

void WrongPredictor::prepare(const PredictorShape& shape) {
  experts_ = shape.experts;
  choices_ = 0;
  last_.assign(std::size_t{shape.layers} * experts_, 0);
}

void WrongPredictor::chosen(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept {
  for (const ExpertIndex expert : experts)
    last_[std::size_t{layer} * experts_ + expert] = ++choices_;
}

std::uint32_t WrongPredictor::guess(LayerIndex layer, std::span<ExpertIndex> out) noexcept {
  const std::uint64_t* const last = last_.data() + std::size_t{layer} * experts_;
  std::uint32_t count = 0;
  for (ExpertIndex id = 0; id < experts_; ++id) {
    if (count == out.size() && last[id] >= last[out[count - 1]]) continue;
    std::uint32_t at = count < out.size() ? count++ : count - 1;
    for (; at > 0 && last[id] < last[out[at - 1]]; --at) out[at] = out[at - 1];
    out[at] = id;
  }
  return count;
}

}  // namespace millrace
