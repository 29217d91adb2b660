// Products of NVFP4 weights and 8-bit activations, over an ISA policy: the canonical dot with a
// scale block of 16 values, whose activations are scaled per 32.
#pragma once

#include <cstring>

#include "kernels/formats/nvfp4-inl.h"
#include "kernels/kernel_table.h"
#include "kernels/prefetch-inl.h"

namespace millrace {
namespace {

inline constexpr std::size_t nvfp4_group_values = 256;

// One token's activations of a group, in the order of FormatNvfp4's codes and sums.
template <class Isa>
struct Nvfp4Activations {
  typename Isa::B64 q[4];
  typename Isa::B64 magnitude[4];
  typename Isa::F32x16 scale;
};

template <class Isa>
[[gnu::always_inline]] inline Nvfp4Activations<Isa> load_nvfp4(const std::int8_t* q,
                                                               const float* scale) {
  Nvfp4Activations<Isa> out;
  const auto* bytes = reinterpret_cast<const std::byte*>(q);
  for (std::size_t v = 0; v < 4; ++v) {
    out.q[v] = Isa::template load_quad<32>(bytes + 128 * (v / 2) + 16 * (v % 2));
    out.magnitude[v] = Isa::magnitudes(out.q[v]);
  }
  alignas(64) float lanes[16];
  for (std::size_t i = 0; i < 16; ++i) lanes[i] = scale[FormatNvfp4::scale_block(i) / 2];
  out.scale = Isa::load(lanes);
  return out;
}

template <class Isa>
[[gnu::always_inline]] inline typename Isa::F32x16 dot_nvfp4(const std::byte* group,
                                                             const Nvfp4Activations<Isa>& x,
                                                             const typename Isa::F32x16& acc) {
  typename Isa::B64 codes[4];
  FormatNvfp4::codes<Isa>(group, codes);
  typename Isa::I32x16 dots[4];
  for (std::size_t v = 0; v < 4; ++v) dots[v] = Isa::dot_small(codes[v], x.q[v], x.magnitude[v]);
  const auto scale = Isa::mul(FormatNvfp4::scales<Isa>(group), x.scale);
  return Isa::fma(Isa::to_f32(Isa::reduce_quads(dots)), scale, acc);
}

// Four rows (past the end the last one again, whose results are dropped), one token.
template <class Isa>
void matvec_nvfp4(const WeightRows& weights, std::size_t row, const Q8Batch& x, std::size_t token,
                  float* y) {
  constexpr std::size_t count = 4;
  const std::size_t left = weights.rows - row;
  const std::byte* at[count];
  for (std::size_t r = 0; r < count; ++r)
    at[r] = weights.data + (row + (r < left ? r : left - 1)) * weights.row_bytes;
  const std::byte* ahead = at[0] + count * weights.row_bytes + prefetch_distance;
  const std::int8_t* q = x.q + token * x.q_stride;
  const float* scale = x.scale + token * x.block_stride;
  typename Isa::F32x16 acc[count];
  for (auto& one : acc) one = Isa::zero();
  std::size_t column = 0;
  for (; column + nvfp4_group_values <= weights.columns; column += nvfp4_group_values) {
    ahead = prefetch_lines<Isa, count * FormatNvfp4::group_bytes>(ahead);
    const auto activations = load_nvfp4<Isa>(q + column, scale + column / 32);
    for (std::size_t r = 0; r < count; ++r) {
      acc[r] = dot_nvfp4<Isa>(at[r], activations, acc[r]);
      at[r] += FormatNvfp4::group_bytes;
    }
  }
  if (column < weights.columns) {  // the missing blocks' scales and codes are zero
    const auto activations = load_nvfp4<Isa>(q + column, scale + column / 32);
    for (std::size_t r = 0; r < count; ++r) {
      std::byte padded[FormatNvfp4::group_bytes] = {};
      std::memcpy(padded, at[r], (weights.columns - column) / 64 * FormatNvfp4::block_bytes);
      acc[r] = dot_nvfp4<Isa>(padded, activations, acc[r]);
    }
  }
  for (std::size_t r = 0; r < count && r < left; ++r) {
    alignas(64) float lanes[16], ordered[16];
    Isa::store(lanes, acc[r]);
    for (std::size_t i = 0; i < 16; ++i) ordered[FormatNvfp4::scale_block(i)] = lanes[i];
    y[row + r] = Isa::tree_sum(Isa::load(ordered));
  }
}

// Several tokens go one by one over the four rows, which then lie in the first-level cache.
template <class Isa>
void matmul_nvfp4(const WeightRows& weights, const Q8Batch& x, std::size_t tokens, float* y,
                  std::size_t y_stride) {
  for (std::size_t row = 0; row < weights.rows; row += 4)
    for (std::size_t t = 0; t < tokens; ++t)
      matvec_nvfp4<Isa>(weights, row, x, t, y + t * y_stride);
}

}  // namespace
}  // namespace millrace
