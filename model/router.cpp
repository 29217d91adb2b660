#include "model/router.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/limits.h"

namespace millrace {

namespace {

// Smallest normal f16: what the publishers' engines clamp the sum of weights to.
constexpr float weight_sum_min = 6.103515625e-5F;

// Keeps the best `used` seen so far in rank order; equal scores stay in order of ids, as ids come
// ascending.
void choose_top(const float* scores, std::size_t experts, std::size_t used, ExpertIndex* chosen) {
  std::size_t count = 0;
  for (std::size_t id = 0; id < experts; ++id) {
    if (count == used && !(scores[id] > scores[chosen[count - 1]])) continue;
    std::size_t at = count < used ? count++ : used - 1;
    while (at > 0 && scores[id] > scores[chosen[at - 1]]) {
      chosen[at] = chosen[at - 1];
      --at;
    }
    chosen[at] = static_cast<ExpertIndex>(id);
  }
}

}  // namespace

void route(const KernelTable& kernels, const RouterRule& rule, float* logits, ExpertIndex* chosen,
           float* weights) {
  MILLRACE_CHECK(rule.used >= 1 && rule.used <= rule.experts &&
                 rule.used <= limits::experts_used_max);
  kernels.softmax(logits, rule.experts);
  choose_top(logits, rule.experts, rule.used, chosen);
  float sum = 0;
  for (std::size_t k = 0; k < rule.used; ++k) {
    weights[k] = logits[chosen[k]];
    sum += weights[k];
  }
  if (rule.normalize) {
    const float divisor = std::max(sum, weight_sum_min);
    for (std::size_t k = 0; k < rule.used; ++k) weights[k] /= divisor;
  }
  if (rule.scale != 1)
    for (std::size_t k = 0; k < rule.used; ++k) weights[k] *= rule.scale;
}

}  // namespace millrace
