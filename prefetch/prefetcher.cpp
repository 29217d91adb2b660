#include "prefetch/prefetcher.h"

#include <algorithm>

namespace millrace {

Prefetcher::Prefetcher(Loader& loader, std::unique_ptr<Predictor> predictor,
                       const PredictorShape& shape, std::vector<bool> routed)
    : loader_(loader),
      predictor_(std::move(predictor)),
      top_k_(std::min(shape.top_k, limits::experts_used_max)),
      routed_(std::move(routed)),
      guesses_(shape.layers),
      scores_(shape.layers) {
  predictor_->prepare(shape);
  for (LayerIndex layer = 0; layer < routed_.size(); ++layer)
    if (routed_[layer]) last_routed_ = layer;
}

void Prefetcher::chosen(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept {
  Guess& guess = guesses_[layer];
  if (guess.count > 0) {
    GuessScore& score = scores_[layer];
    score.guessed += guess.count;
    score.chosen += experts.size();
    for (std::uint32_t i = 0; i < guess.count; ++i)
      if (std::find(experts.begin(), experts.end(), guess.experts[i]) != experts.end())
        ++score.right;
    guess.count = 0;
  }
  predictor_->chosen(layer, experts);
  if (paused_walks_ == 0) judge();
  else if (layer == last_routed_ && --paused_walks_ == 0) resume();
}

// The routed layer whose turn comes next; after the last, the first of the next token.
LayerIndex Prefetcher::next_routed(LayerIndex layer) const noexcept {
  do layer = layer + 1 < routed_.size() ? layer + 1 : 0;
  while (!routed_[layer]);
  return layer;
}

void Prefetcher::look_ahead(LayerIndex layer) noexcept {
  if (paused_walks_ > 0) return;
  LayerIndex target = layer;
  const std::uint32_t targets = std::max(1U, predictor_->layers_ahead());
  for (std::uint32_t i = 0; i < targets; ++i) {
    target = next_routed(target);
    Guess& guess = guesses_[target];
    guess.count = predictor_->guess(target, std::span(guess.experts).first(top_k_));
    if (guess.count > 0) loader_.suggest(target, std::span(guess.experts).first(guess.count));
  }
}

void Prefetcher::resume() noexcept {
  for (Guess& guess : guesses_) guess.count = 0;
  loader_.guess_bytes(guessed_before_, used_before_);
}

// After each layer, so that a trial is no longer than it has to be. A guess costs at most the
// pieces in flight when something is asked for, so a part of them may be wrong; most of them may
// not. The turn of the latest guesses, one token's for each layer ahead, has not come yet.
void Prefetcher::judge() noexcept {
  std::uint64_t guessed = 0, used = 0;
  loader_.guess_bytes(guessed, used);
  // Of what was queued at the last judgement some may have been taken back since.
  guessed_before_ = std::min(guessed_before_, guessed);
  const std::uint64_t read = guessed - guessed_before_;
  const std::uint64_t expert = loader_.largest_expert_bytes();
  const std::uint64_t ahead = std::uint64_t{top_k_} * std::max(1U, predictor_->layers_ahead());
  if (read < (trial_guesses + ahead) * expert) return;
  const auto settled = static_cast<double>(read - ahead * expert);
  if (static_cast<double>(used - used_before_) < used_share_min * settled) {
    paused_walks_ = pause_;
    pause_ = std::min(2 * pause_, pause_walks_max);
    ++pauses_;
  } else {
    pause_ = pause_walks;
  }
  guessed_before_ = guessed;
  used_before_ = used;
}

GuessScore Prefetcher::total() const noexcept {
  GuessScore sum;
  for (const GuessScore& score : scores_) {
    sum.guessed += score.guessed;
    sum.chosen += score.chosen;
    sum.right += score.right;
  }
  return sum;
}

}  // namespace millrace
