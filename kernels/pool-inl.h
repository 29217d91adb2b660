// Pooling of rows with a softmax per channel over an ISA policy; contract in kernel_table.h. For
// channel c, over the items t in their order:
//   m = max s_t[c]   e_t = exp(s_t[c] - m)   l = sum of e_t, from +0   o = fma(e_t, v_t[c], o),
//   from +0; out[c] = fl(o / l)
#pragma once

#include <cstddef>

#include "kernels/elementwise-inl.h"

namespace millrace {
namespace {

template <class Isa>
void softmax_pool(const float* const* scores, const float* const* values, std::size_t items,
                  std::size_t channels, float* out) {
  for_vectors(channels, [=](std::size_t i, std::size_t lanes) {
    auto largest = load_lanes<Isa>(scores[0] + i, lanes);
    for (std::size_t t = 1; t < items; ++t) {
      largest = Isa::max(largest, load_lanes<Isa>(scores[t] + i, lanes));
    }
    auto weights = Isa::zero();
    auto sum = Isa::zero();
    for (std::size_t t = 0; t < items; ++t) {
      const auto weight = exp_lanes<Isa>(Isa::sub(load_lanes<Isa>(scores[t] + i, lanes), largest));
      weights = Isa::add(weights, weight);
      sum = Isa::fma(weight, load_lanes<Isa>(values[t] + i, lanes), sum);
    }
    store_lanes<Isa>(out + i, Isa::div(sum, weights), lanes);
  });
}

}  // namespace
}  // namespace millrace
