// Log-probabilities of raw logits, for reports and perplexity. Pure functions, any thread, the same
// on every machine.
#pragma once

#include <span>

#include "runtime/base/ids.h"

namespace millrace {

// ln of the sum of exp(logit), in double. `logits` must not be empty, nor all minus infinity.
double log_sum_exp(std::span<const float> logits) noexcept;

// ln softmax(logits)[token].
double log_probability(std::span<const float> logits, TokenId token) noexcept;

}  // namespace millrace
