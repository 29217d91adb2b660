// Products of weights of any type and unrounded activations, over an ISA policy and a format:
// element i goes into accumulator i mod 16. Quantized blocks are decoded once per tile.
#pragma once

#include "kernels/kernel_table.h"
#include "kernels/prefetch-inl.h"

namespace millrace {
namespace {

// A tile of row_count x token_count accumulators.
template <class Isa, class Format, std::size_t row_count, std::size_t token_count>
void float_tile(const WeightRows& weights, std::size_t row, const F32Batch& x, std::size_t token,
                float* y, std::size_t y_stride) {
  constexpr std::size_t vectors = Format::step_vectors;
  constexpr std::size_t step = 16 * vectors;
  const std::byte* const first = weights.data + row * weights.row_bytes;
  const float* const values = x.x + token * x.stride;
  const std::byte* ahead = first + row_count * weights.row_bytes + prefetch_distance;
  typename Isa::F32x16 acc[row_count][token_count];
  for (auto& row_acc : acc)
    for (auto& one : row_acc) one = Isa::zero();
  std::size_t i = 0;
  std::size_t at = 0;  // bytes into the row
  for (; i + step <= weights.columns; i += step, at += Format::step_bytes) {
    for (std::size_t r = 0; r < row_count; ++r) {
      const std::byte* p = first + r * weights.row_bytes + at;
      if (token == 0) ahead = prefetch_lines<Isa, Format::step_bytes>(ahead);
      typename Isa::F32x16 w[vectors];
      Format::template decode<Isa>(p, w);
      for (std::size_t t = 0; t < token_count; ++t)
        for (std::size_t v = 0; v < vectors; ++v)
          acc[r][t] = Isa::fma(w[v], Isa::load(values + t * x.stride + i + 16 * v), acc[r][t]);
    }
  }
  if constexpr (vectors == 1) {  // rows of whole blocks have no rest
    if (const std::size_t rest = weights.columns - i; rest != 0) {
      for (std::size_t r = 0; r < row_count; ++r) {
        const auto w = Format::template decode_first<Isa>(first + r * weights.row_bytes + at, rest);
        for (std::size_t t = 0; t < token_count; ++t)
          acc[r][t] = Isa::fma(w, Isa::load_first(values + t * x.stride + i, rest), acc[r][t]);
      }
    }
  }
  for (std::size_t r = 0; r < row_count; ++r)
    for (std::size_t t = 0; t < token_count; ++t)
      y[(token + t) * y_stride + row + r] = Isa::tree_sum(acc[r][t]);
}

template <class Isa, class Format, std::size_t row_count>
void float_rows(const WeightRows& weights, std::size_t row, const F32Batch& x, std::size_t tokens,
                float* y, std::size_t y_stride) {
  constexpr std::size_t tile = Isa::tile_tokens;
  std::size_t t = 0;
  for (; t + tile <= tokens; t += tile)
    float_tile<Isa, Format, row_count, tile>(weights, row, x, t, y, y_stride);
  for (; t < tokens; ++t) float_tile<Isa, Format, row_count, 1>(weights, row, x, t, y, y_stride);
}

template <class Isa, class Format>
void matmul_f32(const WeightRows& weights, const F32Batch& x, std::size_t tokens, float* y,
                std::size_t y_stride) {
  std::size_t row = 0;
  if (tokens == 1) {
    for (; row + Isa::matvec_rows <= weights.rows; row += Isa::matvec_rows)
      float_tile<Isa, Format, Isa::matvec_rows, 1>(weights, row, x, 0, y, y_stride);
  } else {
    for (; row + Isa::tile_rows <= weights.rows; row += Isa::tile_rows)
      float_rows<Isa, Format, Isa::tile_rows>(weights, row, x, tokens, y, y_stride);
  }
  for (; row < weights.rows; ++row)
    float_rows<Isa, Format, 1>(weights, row, x, tokens, y, y_stride);
}

}  // namespace
}  // namespace millrace
