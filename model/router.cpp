#include "model/router.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/math.h"
#include "runtime/base/check.h"
#include "runtime/base/limits.h"

namespace millrace {

namespace {

// Smallest normal f16: what the publishers' engines clamp the sum of weights to.
constexpr float weight_sum_min = 6.103515625e-5F;

// The best of a list in rank order. Equal scores stay in order of ids if ids come ascending.
struct Ranking {
  ExpertIndex* ids;
  std::array<float, limits::experts_max>* scores;
  std::size_t room;
  std::size_t count = 0;

  void offer(std::size_t id, float score) {
    if (count == room && !(score > (*scores)[count - 1])) return;
    std::size_t at = count < room ? count++ : room - 1;
    for (; at > 0 && score > (*scores)[at - 1]; --at) {
      ids[at] = ids[at - 1];
      (*scores)[at] = (*scores)[at - 1];
    }
    ids[at] = static_cast<ExpertIndex>(id);
    (*scores)[at] = score;
  }
};

class Choice {
 public:
  Choice(const RouterRule& rule, const float* probabilities)
      : rule_(rule), probabilities_(probabilities) {}

  void run(ExpertIndex* chosen) {
    std::array<float, limits::experts_max> best;
    Ranking ranking{chosen, &best, rule_.used};
    const std::size_t size = rule_.experts / rule_.groups;
    std::array<ExpertIndex, limits::experts_max> groups;
    choose_groups(size, groups.data());
    for (std::size_t i = 0; i < rule_.groups_used; ++i)
      for (std::size_t id = groups[i] * size; id < (groups[i] + 1) * size; ++id)
        ranking.offer(id, score(id));
  }

 private:
  float score(std::size_t id) const {
    return rule_.selection_bias == nullptr ? probabilities_[id]
                                           : probabilities_[id] + rule_.selection_bias[id];
  }

  // Ascending, so that experts are offered in order of ids.
  void choose_groups(std::size_t size, ExpertIndex* groups) const {
    if (rule_.groups_used == rule_.groups) {
      for (std::size_t group = 0; group < rule_.groups; ++group)
        groups[group] = static_cast<ExpertIndex>(group);
      return;
    }
    std::array<float, limits::experts_max> best;
    Ranking ranking{groups, &best, rule_.groups_used};
    for (std::size_t group = 0; group < rule_.groups; ++group)
      ranking.offer(group, group_score(group * size, (group + 1) * size));
    std::sort(groups, groups + rule_.groups_used);
  }

  float group_score(std::size_t begin, std::size_t end) const {
    float first = score(begin);
    float second = -std::numeric_limits<float>::infinity();
    for (std::size_t id = begin + 1; id < end; ++id) {
      const float next = score(id);
      if (next > first) {
        second = first;
        first = next;
      } else if (next > second) {
        second = next;
      }
    }
    return rule_.group_by_best || end - begin == 1 ? first : first + second;
  }

  const RouterRule& rule_;
  const float* probabilities_;
};

}  // namespace

void route(const KernelTable& kernels, const RouterRule& rule, float* logits, ExpertIndex* chosen,
           float* weights) {
  MILLRACE_CHECK(rule.used >= 1 && rule.used <= rule.experts &&
                 rule.used <= limits::experts_used_max && rule.groups_used <= rule.groups &&
                 rule.experts % rule.groups == 0 &&
                 rule.groups_used * (rule.experts / rule.groups) >= rule.used);
  if (rule.gating == Gating::softmax) kernels.softmax(logits, rule.experts);
  if (rule.gating == Gating::sigmoid) kernels.sigmoid(logits, rule.experts, logits);
  if (rule.gating == Gating::sqrt_softplus)
    for (std::size_t id = 0; id < rule.experts; ++id)
      logits[id] = std::sqrt(softplus_f32(logits[id]));
  if (rule.given != nullptr) std::copy_n(rule.given, rule.used, chosen);
  else Choice(rule, logits).run(chosen);
  for (std::size_t k = 0; k < rule.used; ++k) weights[k] = logits[chosen[k]];
  if (rule.gating == Gating::softmax_chosen) kernels.softmax(weights, rule.used);
  float sum = 0;
  for (std::size_t k = 0; k < rule.used; ++k) sum += weights[k];
  if (rule.normalize) {
    const float divisor = std::max(sum, weight_sum_min);
    for (std::size_t k = 0; k < rule.used; ++k) weights[k] /= divisor;
  }
  if (rule.scale != 1)
    for (std::size_t k = 0; k < rule.used; ++k) weights[k] *= rule.scale;
}

}  // namespace millrace
