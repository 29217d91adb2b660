// Chooses the next token from logits, in llama.cpp's order: bias, penalties, top-k, top-p, min-p,
// temperature, draw. Truncation sees the untempered distribution. The choice is a function of
// options, seed, logits, history and position only: the same on every machine, and a sampler can be
// asked again for any position.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/sampling/random.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

// Added to a logit; minus infinity bans the token.
struct LogitBias {
  TokenId token = 0;
  float bias = 0;
};

struct SamplingOptions {
  float temperature = 0.8F;  // <= 0: greedy, truncation is of no effect
  std::int32_t top_k = 40;   // <= 0: all
  float top_p = 0.95F;       // >= 1: off
  float min_p = 0.05F;       // <= 0: off
  // Penalties look at the last `repeat_last_n` tokens of the history, prompt included; -1: all of
  // it, 0: none.
  float repeat_penalty = 1.0F;
  std::int32_t repeat_last_n = 64;
  float frequency_penalty = 0.0F;
  float presence_penalty = 0.0F;
  std::uint32_t seed = random_seed;
  std::vector<LogitBias> biases;  // those of one token add up
};

// One per sequence. Not thread-safe. Allocates at creation only.
class Sampler {
 public:
  // KernelTable::exp: every table's gives the same bits.
  using Exp = void (*)(const float* x, std::size_t count, float* out);

  // `vocabulary`: number of logits that sample() will be given. `exp`: the chosen
  // kernels' one, worth having where truncation leaves much; nullptr: exp_f32, slower. Fails with
  // `usage`, naming the flag, if a value makes no sense.
  static Result<Sampler> create(SamplingOptions options, std::size_t vocabulary, Exp exp = nullptr);

  // The token for `position`, the index in the sequence that it will have. `history` is the
  // sequence before it. Ties go to the lower id. Fails (`format`: the model is at fault) if a logit
  // is NaN or +infinity, or if no token is left.
  Result<TokenId> sample(std::span<const float> logits, std::span<const TokenId> history,
                         std::uint64_t position);

  const SamplingOptions& options() const noexcept { return options_; }
  std::uint32_t seed() const noexcept { return options_.seed; }  // the one in use

  // What was left to draw from at the last sample(), after temperature; for reports and tests.
  // Empty after a greedy choice.
  struct Candidate {
    float logit = 0;
    TokenId id = 0;
    float weight = 0;  // exp(logit - the largest logit): not normalised
  };
  std::span<const Candidate> candidates() const noexcept { return candidates_; }

 private:
  Sampler(SamplingOptions options, std::size_t vocabulary, Exp exp);
  void adjust(std::span<const float> logits, std::span<const TokenId> history);
  void penalise(std::span<const TokenId> history);
  Result<TokenId> largest() const;
  void keep_top_k();
  void keep_top_p();
  void keep_min_p();
  double weigh(float temperature);
  TokenId draw(double total, double uniform) const noexcept;

  SamplingOptions options_;
  Exp exp_;
  std::vector<float> logits_;  // with bias and penalties
  std::vector<Candidate> candidates_;
  std::vector<float> distances_;  // of the candidates from the best one
  std::vector<float> weights_;
  std::vector<std::uint32_t> counts_;  // by token, zero between calls
};

}  // namespace millrace
