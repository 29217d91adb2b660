// Rotary position embedding over an ISA policy; contracts in kernel_table.h. A pair (u, v) becomes
//   u' = fma(u, cos, -fl(v * sin))     v' = fma(v, cos, fl(u * sin))
#pragma once

#include <cstddef>

#include "kernels/elementwise-inl.h"

namespace millrace {
namespace {

// Pairs (2i, 2i + 1): with the pair swapped, both lines are one fma whose addend alternates in
// sign.
template <class Isa>
void rope_norm(float* x, std::size_t heads, std::size_t head_dim, std::size_t rotary,
               const float* cosine, const float* sine) {
  const auto rotate = [](typename Isa::F32x16 v, typename Isa::F32x16 c, typename Isa::F32x16 s) {
    return Isa::fma(v, c, Isa::negate_even(Isa::mul(Isa::swap_pairs(v), s)));
  };
  for (std::size_t head = 0; head < heads; ++head) {
    float* const row = x + head * head_dim;
    std::size_t i = 0;
    for (; i + 16 <= rotary; i += 16) {
      Isa::store(row + i, rotate(Isa::load(row + i), Isa::load_pairs(cosine + i / 2),
                                 Isa::load_pairs(sine + i / 2)));
    }
    if (const std::size_t lanes = rotary - i; lanes > 0) {
      const auto c = Isa::load_pairs_first(cosine + i / 2, lanes / 2);
      const auto s = Isa::load_pairs_first(sine + i / 2, lanes / 2);
      Isa::store_first(row + i, rotate(Isa::load_first(row + i, lanes), c, s), lanes);
    }
  }
}

// Pairs (i, i + rotary / 2).
template <class Isa>
void rope_neox(float* x, std::size_t heads, std::size_t head_dim, std::size_t rotary,
               const float* cosine, const float* sine) {
  const std::size_t pairs = rotary / 2;
  for (std::size_t head = 0; head < heads; ++head) {
    float* const low = x + head * head_dim;
    float* const high = low + pairs;
    for_vectors(pairs, [=](std::size_t i, std::size_t lanes) {
      const auto u = load_lanes<Isa>(low + i, lanes);
      const auto v = load_lanes<Isa>(high + i, lanes);
      const auto c = load_lanes<Isa>(cosine + i, lanes);
      const auto s = load_lanes<Isa>(sine + i, lanes);
      const auto minus_s = Isa::mul(s, Isa::set1(-1.0f));
      store_lanes<Isa>(low + i, Isa::fma(u, c, Isa::mul(v, minus_s)), lanes);
      store_lanes<Isa>(high + i, Isa::fma(v, c, Isa::mul(u, s)), lanes);
    });
  }
}

}  // namespace
}  // namespace millrace
