// Gated delta nets over an ISA policy: the convolution in front of them and the step of their
// state; contracts in kernel_table.h.
#pragma once

#include <cstddef>

#include "kernels/elementwise-inl.h"

namespace millrace {
namespace {

template <class Isa>
void conv_silu(const ConvArgs& args) {
  for_vectors(args.count, [&](std::size_t i, std::size_t lanes) {
    auto sum = Isa::zero();
    for (std::size_t tap = 0; tap < args.taps; ++tap)
      sum = Isa::fma(load_lanes<Isa>(args.weights + tap * args.weight_stride + i, lanes),
                     load_lanes<Isa>(args.rows[tap] + i, lanes), sum);
    store_lanes<Isa>(args.out + i, silu_lanes<Isa>(sum), lanes);
  });
}

// Columns first .. of the state: `vectors` of 16 each, or one of `lanes`. They are walked twice:
// what the old state finds for k must be known before it is corrected. That many rows of that many
// columns stay in the first-level cache.
template <class Isa, std::size_t vectors>
[[gnu::always_inline]] inline void delta_columns(const DeltaArgs& args, std::size_t first,
                                                 std::size_t lanes) {
  using Vector = typename Isa::F32x16;
  const Vector decay = Isa::set1(args.decay);
  float* const state = args.state + first;
  Vector error[vectors];
  for (std::size_t n = 0; n < vectors; ++n) error[n] = Isa::zero();
  for (std::size_t i = 0; i < args.key_dim; ++i) {
    const Vector k = Isa::set1(args.k[i]);
    const float* const row = state + i * args.value_dim;
    for (std::size_t n = 0; n < vectors; ++n)
      error[n] = Isa::fma(k, Isa::mul(decay, load_lanes<Isa>(row + 16 * n, lanes)), error[n]);
  }
  const Vector beta = Isa::set1(args.beta);
  Vector sum[vectors];
  for (std::size_t n = 0; n < vectors; ++n) {
    const Vector value = load_lanes<Isa>(args.v + first + 16 * n, lanes);
    error[n] = Isa::mul(beta, Isa::sub(value, error[n]));
    sum[n] = Isa::zero();
  }
  for (std::size_t i = 0; i < args.key_dim; ++i) {
    const Vector k = Isa::set1(args.k[i]);
    const Vector q = Isa::set1(args.q[i]);
    float* const row = state + i * args.value_dim;
    for (std::size_t n = 0; n < vectors; ++n) {
      const Vector old = Isa::mul(decay, load_lanes<Isa>(row + 16 * n, lanes));
      const Vector made = Isa::fma(k, error[n], old);
      store_lanes<Isa>(row + 16 * n, made, lanes);
      sum[n] = Isa::fma(q, made, sum[n]);
    }
  }
  const Vector scale = Isa::set1(args.scale);
  for (std::size_t n = 0; n < vectors; ++n)
    store_lanes<Isa>(args.out + first + 16 * n, Isa::mul(scale, sum[n]), lanes);
}

template <class Isa>
void delta_step(const DeltaArgs& args) {
  std::size_t first = 0;
  for (; first + 32 <= args.value_dim; first += 32) delta_columns<Isa, 2>(args, first, 16);
  for_vectors(args.value_dim - first, [&](std::size_t i, std::size_t lanes) {
    delta_columns<Isa, 1>(args, first + i, lanes);
  });
}

}  // namespace
}  // namespace millrace
