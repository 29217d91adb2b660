#include "model/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/math.h"
#include "runtime/base/check.h"
#include "runtime/base/counted.h"

namespace millrace {

namespace {

using Candidate = Sampler::Candidate;

// Beyond this distance from the best logit a token's weight is below 2^-144: none.
constexpr float weightless = -100.0F;

// The better one first; equal logits: the lower id.
bool before(const Candidate& a, const Candidate& b) noexcept {
  return a.logit > b.logit || (a.logit == b.logit && a.id < b.id);
}

void exp_by_scalar(const float* x, std::size_t count, float* out) {
  for (std::size_t i = 0; i < count; ++i) out[i] = exp_f32(x[i]);
}

float largest_logit(std::span<const Candidate> candidates) noexcept {
  float best = -std::numeric_limits<float>::infinity();
  for (const Candidate& candidate : candidates) best = std::max(best, candidate.logit);
  return best;
}

Error bad_option(const char* flag, float value, const char* expected) {
  return out_of_range(flag, fmt::format("{}", value), expected);
}

Status check(const SamplingOptions& options, std::size_t vocabulary) {
  if (std::isnan(options.temperature) || std::isinf(options.temperature))
    return bad_option("--temp", options.temperature, "a finite number");
  if (std::isnan(options.top_p) || options.top_p <= 0)
    return bad_option("--top-p", options.top_p, "above 0 (1: off)");
  if (std::isnan(options.min_p) || options.min_p > 1)
    return bad_option("--min-p", options.min_p, "at most 1 (0: off)");
  if (!std::isfinite(options.repeat_penalty) || options.repeat_penalty <= 0)
    return bad_option("--repeat-penalty", options.repeat_penalty, "finite and above 0 (1: off)");
  if (options.repeat_last_n < -1)
    return out_of_range("--repeat-last-n", std::to_string(options.repeat_last_n), "-1 or more");
  if (!std::isfinite(options.frequency_penalty))
    return bad_option("--frequency-penalty", options.frequency_penalty, "finite");
  if (!std::isfinite(options.presence_penalty))
    return bad_option("--presence-penalty", options.presence_penalty, "finite");
  for (const LogitBias& bias : options.biases) {
    if (bias.token < 0 || static_cast<std::size_t>(bias.token) >= vocabulary)
      return Error{ErrorCode::usage,
                   fmt::format("a bias names token {}, but there are {}", bias.token, vocabulary)};
    if (std::isnan(bias.bias) || bias.bias == std::numeric_limits<float>::infinity())
      return Error{ErrorCode::usage,
                   fmt::format("the bias of token {} is {}, but must be finite or minus infinity",
                               bias.token, bias.bias)};
  }
  return {};
}

}  // namespace

Result<Sampler> Sampler::create(SamplingOptions options, std::size_t vocabulary, Exp exp) {
  MILLRACE_CHECK(vocabulary > 0);
  MILLRACE_TRY(check(options, vocabulary));
  options.seed = resolve_seed(options.seed);
  return Sampler(std::move(options), vocabulary, exp == nullptr ? exp_by_scalar : exp);
}

Sampler::Sampler(SamplingOptions options, std::size_t vocabulary, Exp exp)
    : options_(std::move(options)),
      exp_(exp),
      logits_(vocabulary),
      distances_(vocabulary),
      weights_(vocabulary),
      counts_(vocabulary) {
  candidates_.reserve(vocabulary);
}

Result<TokenId> Sampler::sample(std::span<const float> logits, std::span<const TokenId> history,
                                std::uint64_t position) {
  MILLRACE_CHECK(logits.size() == logits_.size());
  adjust(logits, history);
  candidates_.clear();
  MILLRACE_ASSIGN(const TokenId best, largest());
  if (options_.temperature <= 0) return best;

  for (std::size_t i = 0; i < logits_.size(); ++i)
    if (logits_[i] != -std::numeric_limits<float>::infinity())
      candidates_.push_back({logits_[i], static_cast<TokenId>(i), 0});
  keep_top_k();
  keep_top_p();
  keep_min_p();
  const double total = weigh(options_.temperature);
  return draw(total, uniform_at(options_.seed, position, 0));
}

void Sampler::adjust(std::span<const float> logits, std::span<const TokenId> history) {
  std::copy(logits.begin(), logits.end(), logits_.begin());
  for (const LogitBias& bias : options_.biases)
    logits_[static_cast<std::size_t>(bias.token)] += bias.bias;
  const bool off = options_.repeat_penalty == 1.0F && options_.frequency_penalty == 0.0F &&
                   options_.presence_penalty == 0.0F;
  if (off) return;
  const std::size_t window =
      options_.repeat_last_n < 0
          ? history.size()
          : std::min<std::size_t>(history.size(), static_cast<std::size_t>(options_.repeat_last_n));
  penalise(history.last(window));
}

void Sampler::penalise(std::span<const TokenId> history) {
  for (const TokenId id : history) {
    MILLRACE_CHECK(id >= 0 && static_cast<std::size_t>(id) < counts_.size());
    ++counts_[static_cast<std::size_t>(id)];
  }
  for (const TokenId id : history) {
    std::uint32_t& count = counts_[static_cast<std::size_t>(id)];
    if (count == 0) continue;  // done at its first place
    float& logit = logits_[static_cast<std::size_t>(id)];
    logit = logit <= 0 ? logit * options_.repeat_penalty : logit / options_.repeat_penalty;
    logit -= static_cast<float>(count) * options_.frequency_penalty + options_.presence_penalty;
    count = 0;
  }
}

Result<TokenId> Sampler::largest() const {
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits_.size(); ++i) {
    if (std::isnan(logits_[i]) || logits_[i] == std::numeric_limits<float>::infinity())
      return Error{ErrorCode::format,
                   fmt::format("the model's logit of token {} is {}: its weights or this build's "
                               "arithmetic are broken",
                               i, logits_[i])};
    if (logits_[i] > logits_[best]) best = i;
  }
  if (logits_[best] == -std::numeric_limits<float>::infinity())
    return Error{ErrorCode::format, "every token is banned or has a logit of minus infinity"};
  return static_cast<TokenId>(best);
}

void Sampler::keep_top_k() {
  if (options_.top_k <= 0) return;
  const auto count =
      std::min<std::size_t>(candidates_.size(), static_cast<std::size_t>(options_.top_k));
  if (count == candidates_.size()) return;
  const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
  std::partial_sort(candidates_.begin(), end, candidates_.end(), before);
  candidates_.resize(count);
}

// The shortest list of best tokens whose share is at least top_p. They are sorted out in growing
// steps, since usually few are needed of a whole vocabulary.
void Sampler::keep_top_p() {
  if (options_.top_p >= 1) return;
  const double wanted = static_cast<double>(options_.top_p) * weigh(1.0F);
  constexpr std::size_t first_step = 128;
  const std::size_t count = candidates_.size();
  const auto begin = candidates_.begin();
  double sum = 0;
  std::size_t sorted = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (i == sorted) {
      sorted = std::min(count, std::max(first_step, sorted * 2));
      std::partial_sort(begin + static_cast<std::ptrdiff_t>(i),
                        begin + static_cast<std::ptrdiff_t>(sorted), candidates_.end(), before);
    }
    sum += static_cast<double>(candidates_[i].weight);
    if (sum >= wanted) {
      candidates_.resize(i + 1);
      return;
    }
  }
}

void Sampler::keep_min_p() {
  if (options_.min_p <= 0) return;
  const float best = largest_logit(candidates_);
  const float least = best + static_cast<float>(log_f64(static_cast<double>(options_.min_p)));
  // The best one stays even if rounding puts the border above it.
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return candidate.logit < least && candidate.logit < best;
  });
}

// Divides the logits by `temperature` and sets the weights; returns their sum.
double Sampler::weigh(float temperature) {
  const float best = largest_logit(candidates_);
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    // The difference first: it is 0 for the best one, however small the temperature.
    distances_[i] = std::max((candidates_[i].logit - best) / temperature, weightless);
    candidates_[i].logit /= temperature;
  }
  exp_(distances_.data(), candidates_.size(), weights_.data());
  double total = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    candidates_[i].weight = distances_[i] > weightless ? weights_[i] : 0.0F;
    total += static_cast<double>(candidates_[i].weight);
  }
  return total;
}

TokenId Sampler::draw(double total, double uniform) const noexcept {
  const double wanted = uniform * total;
  double sum = 0;
  for (const Candidate& candidate : candidates_) {
    sum += static_cast<double>(candidate.weight);
    if (sum > wanted) return candidate.id;
  }
  // Rounding at the end: the last one that has any weight.
  const auto last = std::find_if(candidates_.rbegin(), candidates_.rend(),
                                 [](const Candidate& candidate) { return candidate.weight > 0; });
  MILLRACE_CHECK(last != candidates_.rend());  // the best one has weight 1
  return last->id;
}

}  // namespace millrace
