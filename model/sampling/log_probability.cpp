#include "model/sampling/log_probability.h"

#include <algorithm>

#include "kernels/math.h"
#include "runtime/base/check.h"

namespace millrace {

double log_sum_exp(std::span<const float> logits) noexcept {
  MILLRACE_CHECK(!logits.empty());
  constexpr double negligible = -200;
  const double best = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0;
  for (const float logit : logits) {
    const double distance = static_cast<double>(logit) - best;
    if (distance > negligible) sum += exp_f64(distance);
  }
  return best + log_f64(sum);
}

double log_probability(std::span<const float> logits, TokenId token) noexcept {
  MILLRACE_CHECK(token >= 0 && static_cast<std::size_t>(token) < logits.size());
  return static_cast<double>(logits[static_cast<std::size_t>(token)]) - log_sum_exp(logits);
}

}  // namespace millrace
