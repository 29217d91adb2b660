// Prefetcher: hands a predictor's guesses to the loader, keeps score of them, and stops guessing
// while it does not pay. Owned by the engine; called by the thread that walks the layers, for
// single tokens only (a prompt part asks for nearly everything anyway). stats() from that thread or
// when no walk is under way. Allocates at construction only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "prefetch/loader.h"
#include "prefetch/predictor.h"
#include "runtime/base/limits.h"

namespace millrace {

// Of one layer: how the last guess before its turn compares with what was chosen.
struct GuessScore {
  std::uint64_t guessed = 0;
  std::uint64_t chosen = 0;
  std::uint64_t right = 0;
  double recall() const noexcept {
    return chosen == 0 ? 0 : static_cast<double>(right) / static_cast<double>(chosen);
  }
  double precision() const noexcept {
    return guessed == 0 ? 0 : static_cast<double>(right) / static_cast<double>(guessed);
  }
};

class Prefetcher {
 public:
  // Guesses are read while at least this share of what was read for them has been used.
  static constexpr double used_share_min = 0.25;
  static constexpr std::uint32_t trial_guesses = 16;  // read before the first judgement
  static constexpr std::uint32_t pause_walks = 128;   // doubled with each pause
  static constexpr std::uint32_t pause_walks_max = 4096;

  // `loader` outlives it; `routed`: layers with experts.
  Prefetcher(Loader& loader, std::unique_ptr<Predictor> predictor, const PredictorShape& shape,
             std::vector<bool> routed);

  const char* name() const noexcept { return predictor_->name(); }
  // Layers behind `layer` whose routers are wanted on the present state now; 0 during a pause.
  std::uint32_t layers_ahead() const noexcept {
    return paused_walks_ > 0 ? 0 : predictor_->layers_ahead();
  }
  // A token's choice, before its experts are asked for.
  void chosen(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept;
  void foreseen(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept {
    predictor_->foreseen(layer, experts);
  }
  // The experts of `layer` have been asked for: now is the time to guess what comes next.
  void look_ahead(LayerIndex layer) noexcept;

  const std::vector<GuessScore>& scores() const noexcept { return scores_; }  // by layer
  GuessScore total() const noexcept;
  std::uint32_t pauses() const noexcept { return pauses_; }

 private:
  struct Guess {
    std::array<ExpertIndex, limits::experts_used_max> experts{};
    std::uint32_t count = 0;
  };
  void judge() noexcept;
  void resume() noexcept;
  LayerIndex next_routed(LayerIndex layer) const noexcept;

  Loader& loader_;
  std::unique_ptr<Predictor> predictor_;
  std::uint32_t top_k_;
  std::vector<bool> routed_;
  LayerIndex last_routed_ = 0;
  std::vector<Guess> guesses_;  // by layer: the latest
  std::vector<GuessScore> scores_;
  // Since the last judgement.
  std::uint64_t guessed_before_ = 0, used_before_ = 0;
  std::uint32_t pause_ = pause_walks;  // length of the next
  std::uint32_t paused_walks_ = 0;     // left of this one
  std::uint32_t pauses_ = 0;
};

}  // namespace millrace
