// The router's choice: from one token's logits to its experts and their weights. Pure.
#pragma once

#include <cstddef>

#include "kernels/kernel_table.h"
#include "model/arch/family.h"
#include "runtime/base/ids.h"

namespace millrace {

struct RouterRule {
  Gating gating = Gating::softmax;
  bool normalize = false;  // divide the chosen weights by their sum
  float scale = 1;         // then multiply
  std::size_t experts = 0;
  std::size_t used = 0;  // top-k
  // Experts in `groups` equal groups, of which the `groups_used` with the largest sums of their two
  // best scores, or the largest best scores, may be chosen from; groups_used * (experts / groups)
  // >= used.
  std::size_t groups = 1;
  std::size_t groups_used = 1;
  bool group_by_best = false;
  const float* selection_bias = nullptr;  // per expert, added to the score but not to the weight
  // The choice in rank order where it is given (hash routing); scores then only weight it.
  const ExpertIndex* given = nullptr;
};

// Chooses `used` experts in rank order (score descending, ties to the lower id, so to the lower
// group). `logits` is overwritten with the probabilities (softmax_chosen: it stays as it is).
// chosen and weights take `used` entries.
void route(const KernelTable& kernels, const RouterRule& rule, float* logits, ExpertIndex* chosen,
           float* weights);

}  // namespace millrace
