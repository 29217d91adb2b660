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
};

// Chooses `used` experts in rank order (score descending, ties to the lower id). `logits` is
// overwritten with the probabilities. chosen and weights take `used` entries.
void route(const KernelTable& kernels, const RouterRule& rule, float* logits, ExpertIndex* chosen,
           float* weights);

}  // namespace millrace
