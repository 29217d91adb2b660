// Products of scaled types (scales apart from the codes) and unrounded activations, and their
// decoding, over an ISA policy and a format: element i is fl(code * scale) and goes into
// accumulator i mod 16. Scales of a tile are fetched once per tile and row.
#pragma once

#include <cstring>

#include "kernels/formats/scaled-inl.h"
#include "kernels/kernel_table.h"
#include "kernels/prefetch-inl.h"

namespace millrace {
namespace {

// The last 16 elements of a row or fewer; the others become +0 times the scale.
template <class Isa, class Format>
typename Isa::F32x16 first_values(const std::byte* p, std::size_t count) {
  std::byte padded[16] = {};
  std::memcpy(padded, p, (count * Format::step_bytes + 15) / 16);
  return Format::template values<Isa>(padded);
}

template <class Isa, class Format, std::size_t row_count, std::size_t token_count>
void scaled_tile(const WeightRows& weights, std::size_t row, const F32Batch& x, std::size_t token,
                 float* y, std::size_t y_stride) {
  const float* const values = x.x + token * x.stride;
  const std::byte* codes[row_count];
  const std::byte* scales[row_count];
  for (std::size_t r = 0; r < row_count; ++r) {
    codes[r] = weights.data + (row + r) * weights.row_bytes;
    scales[r] = scale_row(weights, row + r, Format::tile_rows);
  }
  const std::byte* ahead = codes[0] + row_count * weights.row_bytes + prefetch_distance;
  typename Isa::F32x16 acc[row_count][token_count];
  for (auto& row_acc : acc)
    for (auto& one : row_acc) one = Isa::zero();
  for (std::size_t i = 0, tile = 0; i < weights.columns; ++tile) {
    const std::size_t left = weights.columns - i;
    const std::size_t end = i + (left < Format::tile_columns ? left : Format::tile_columns);
    typename Isa::F32x16 scale[row_count];
    for (std::size_t r = 0; r < row_count; ++r)
      scale[r] = Isa::set1(Format::scale(weights.scale_type, scales[r], tile));
    for (; i + 16 <= end; i += 16) {
      if (token == 0) ahead = prefetch_lines<Isa, row_count * Format::step_bytes>(ahead);
      for (std::size_t r = 0; r < row_count; ++r) {
        const auto w = Isa::mul(Format::template values<Isa>(codes[r]), scale[r]);
        codes[r] += Format::step_bytes;
        for (std::size_t t = 0; t < token_count; ++t)
          acc[r][t] = Isa::fma(w, Isa::load(values + t * x.stride + i), acc[r][t]);
      }
    }
    if (const std::size_t rest = end - i; rest != 0) {  // only the row's last tile has one
      for (std::size_t r = 0; r < row_count; ++r) {
        const auto w = Isa::mul(first_values<Isa, Format>(codes[r], rest), scale[r]);
        for (std::size_t t = 0; t < token_count; ++t) {
          const auto one = Isa::fma(w, Isa::load_first(values + t * x.stride + i, rest), acc[r][t]);
          alignas(64) float lanes[16];
          Isa::store(lanes, acc[r][t]);  // a NaN scale must not reach the lanes past the end
          Isa::store_first(lanes, one, rest);
          acc[r][t] = Isa::load(lanes);
        }
      }
      i = end;
    }
  }
  for (std::size_t r = 0; r < row_count; ++r)
    for (std::size_t t = 0; t < token_count; ++t)
      y[(token + t) * y_stride + row + r] = Isa::tree_sum(acc[r][t]);
}

template <class Isa, class Format, std::size_t row_count>
void scaled_rows(const WeightRows& weights, std::size_t row, const F32Batch& x, std::size_t tokens,
                 float* y, std::size_t y_stride) {
  constexpr std::size_t tile = Isa::tile_tokens;
  std::size_t t = 0;
  for (; t + tile <= tokens; t += tile)
    scaled_tile<Isa, Format, row_count, tile>(weights, row, x, t, y, y_stride);
  for (; t < tokens; ++t) scaled_tile<Isa, Format, row_count, 1>(weights, row, x, t, y, y_stride);
}

template <class Isa, class Format>
void matmul_scaled(const WeightRows& weights, const F32Batch& x, std::size_t tokens, float* y,
                   std::size_t y_stride) {
  std::size_t row = 0;
  for (; row + Isa::tile_rows <= weights.rows; row += Isa::tile_rows)
    scaled_rows<Isa, Format, Isa::tile_rows>(weights, row, x, tokens, y, y_stride);
  for (; row < weights.rows; ++row)
    scaled_rows<Isa, Format, 1>(weights, row, x, tokens, y, y_stride);
}

template <class Isa, class Format>
void decode_scaled(const WeightRows& weights, std::size_t row, float* out) {
  const std::byte* codes = weights.data + row * weights.row_bytes;
  const std::byte* const scales = scale_row(weights, row, Format::tile_rows);
  for (std::size_t i = 0; i < weights.columns; i += 16, codes += Format::step_bytes) {
    const auto scale =
        Isa::set1(Format::scale(weights.scale_type, scales, i / Format::tile_columns));
    const std::size_t left = weights.columns - i;
    if (left >= 16) Isa::store(out + i, Isa::mul(Format::template values<Isa>(codes), scale));
    else Isa::store_first(out + i, Isa::mul(first_values<Isa, Format>(codes, left), scale), left);
  }
}

}  // namespace
}  // namespace millrace
