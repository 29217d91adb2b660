// Softmax over an ISA policy; contract in kernel_table.h.
#pragma once

#include <cstddef>

#include "kernels/elementwise-inl.h"

namespace millrace {
namespace {

constexpr float minus_infinity = -__builtin_inff();

// `lanes` values, the other lanes minus infinity.
template <class Isa>
[[gnu::always_inline]] inline typename Isa::F32x16 load_or_minus_infinity(const float* p,
                                                                          std::size_t lanes) {
  if (lanes == 16) return Isa::load(p);
  alignas(64) float padded[16];
  Isa::store(padded, Isa::set1(minus_infinity));
  Isa::store_first(padded, Isa::load_first(p, lanes), lanes);
  return Isa::load(padded);
}

template <class Isa>
float maximum(const float* x, std::size_t count) {
  auto largest = Isa::set1(minus_infinity);
  for_vectors(count, [&](std::size_t i, std::size_t lanes) {
    largest = Isa::max(largest, load_or_minus_infinity<Isa>(x + i, lanes));
  });
  return Isa::tree_max(largest);
}

// x[i] becomes exp(x[i] - shift); returns the sum (16 accumulators and the tree).
template <class Isa>
float exp_and_sum(float* x, float shift, std::size_t count) {
  const auto shifts = Isa::set1(shift);
  auto sum = Isa::zero();
  for_vectors(count, [&](std::size_t i, std::size_t lanes) {
    const auto e = exp_lanes<Isa>(Isa::sub(load_or_minus_infinity<Isa>(x + i, lanes), shifts));
    store_lanes<Isa>(x + i, e, lanes);
    sum = Isa::add(sum, e);  // the lanes of the tail are exp(-inf) = 0
  });
  return Isa::tree_sum(sum);
}

// m = max x, e = exp(x - m), e / sum(e), true division. A NaN, a plus infinity, or nothing but
// minus infinity makes every result NaN.
template <class Isa>
void softmax(float* x, std::size_t count) {
  if (count == 0) return;
  const auto sum = Isa::set1(exp_and_sum<Isa>(x, maximum<Isa>(x, count), count));
  for_vectors(count, [=](std::size_t i, std::size_t lanes) {
    store_lanes<Isa>(x + i, Isa::div(load_lanes<Isa>(x + i, lanes), sum), lanes);
  });
}

}  // namespace
}  // namespace millrace
