// Kernels that treat each element alone, over an ISA policy; contracts in kernel_table.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "kernels/math-inl.h"

namespace millrace {
namespace {

// Calls body(begin, lanes) for each 16 elements, the last time with what is left (1..15). The body
// must treat lanes == 16 by full loads, so that only the tail pays for partial ones.
template <class Body>
[[gnu::always_inline]] inline void for_vectors(std::size_t count, Body body) {
  std::size_t i = 0;
  for (; i + 16 <= count; i += 16) body(i, std::size_t{16});
  if (i < count) body(i, count - i);
}

template <class Isa>
[[gnu::always_inline]] inline typename Isa::F32x16 load_lanes(const float* p, std::size_t lanes) {
  return lanes == 16 ? Isa::load(p) : Isa::load_first(p, lanes);
}

template <class Isa>
[[gnu::always_inline]] inline void store_lanes(float* p, typename Isa::F32x16 x,
                                               std::size_t lanes) {
  if (lanes == 16) {
    Isa::store(p, x);
  } else {
    Isa::store_first(p, x, lanes);
  }
}

template <class Isa>
void exp_all(const float* x, std::size_t count, float* out) {
  for_vectors(count, [=](std::size_t i, std::size_t lanes) {
    store_lanes<Isa>(out + i, exp_lanes<Isa>(load_lanes<Isa>(x + i, lanes)), lanes);
  });
}

// fl(silu(gate) * up)
template <class Isa>
void swiglu(const float* gate, const float* up, std::size_t count, float* out) {
  for_vectors(count, [=](std::size_t i, std::size_t lanes) {
    const auto silu = silu_lanes<Isa>(load_lanes<Isa>(gate + i, lanes));
    store_lanes<Isa>(out + i, Isa::mul(silu, load_lanes<Isa>(up + i, lanes)), lanes);
  });
}

// g = min(gate, limit), u = clamp(up, limit): fl(fl(g / (1 + exp(-fl(slope * g)))) * fl(u +
// offset)). min and max give their second operand when one is NaN, so NaN passes through.
template <class Isa>
void swiglu_clamped(const float* gate, const float* up, std::size_t count, const SwigluClamp& clamp,
                    float* out) {
  const auto limit = Isa::set1(clamp.limit);
  const auto low = Isa::set1(-clamp.limit);
  const auto slope = Isa::set1(-clamp.slope);
  const auto offset = Isa::set1(clamp.offset);
  const auto one = Isa::set1(1.0f);
  for_vectors(count, [=](std::size_t i, std::size_t lanes) {
    const auto g = Isa::min(limit, load_lanes<Isa>(gate + i, lanes));
    const auto u = Isa::max(low, Isa::min(limit, load_lanes<Isa>(up + i, lanes)));
    const auto silu = Isa::div(g, Isa::add(one, exp_lanes<Isa>(Isa::mul(slope, g))));
    store_lanes<Isa>(out + i, Isa::mul(silu, Isa::add(u, offset)), lanes);
  });
}

template <class Isa>
void sigmoid(const float* x, std::size_t count, float* out) {
  for_vectors(count, [=](std::size_t i, std::size_t lanes) {
    store_lanes<Isa>(out + i, sigmoid_lanes<Isa>(load_lanes<Isa>(x + i, lanes)), lanes);
  });
}

template <class Isa>
void add(const float* x, std::size_t count, float* y) {
  for_vectors(count, [=](std::size_t i, std::size_t lanes) {
    store_lanes<Isa>(y + i, Isa::add(load_lanes<Isa>(y + i, lanes), load_lanes<Isa>(x + i, lanes)),
                     lanes);
  });
}

template <class Isa>
void add_scaled(const float* x, float factor, std::size_t count, float* y) {
  const auto factors = Isa::set1(factor);
  for_vectors(count, [=](std::size_t i, std::size_t lanes) {
    const auto sum =
        Isa::fma(factors, load_lanes<Isa>(x + i, lanes), load_lanes<Isa>(y + i, lanes));
    store_lanes<Isa>(y + i, sum, lanes);
  });
}

template <class Isa>
void to_f16(const float* x, std::size_t count, std::uint16_t* out) {
  for_vectors(count, [=](std::size_t i, std::size_t lanes) {
    if (lanes == 16) {
      Isa::store_f16(out + i, Isa::load(x + i));
    } else {
      Isa::store_f16_first(out + i, Isa::load_first(x + i, lanes), lanes);
    }
  });
}

// x * 0 is 0 exactly for the finite, NaN for the others, and NaN survives every sum.
template <class Isa>
bool all_finite(const float* x, std::size_t count) {
  const auto zero = Isa::zero();
  auto even = zero;
  auto odd = zero;
  std::size_t i = 0;
  for (; i + 32 <= count; i += 32) {
    even = Isa::fma(Isa::load(x + i), zero, even);
    odd = Isa::fma(Isa::load(x + i + 16), zero, odd);
  }
  for_vectors(count - i, [&](std::size_t k, std::size_t lanes) {
    even = Isa::fma(load_lanes<Isa>(x + i + k, lanes), zero, even);
  });
  return Isa::tree_sum(Isa::add(even, odd)) == 0.0f;
}

}  // namespace
}  // namespace millrace
