// Products of super-blocks of 256 values, over an ISA policy and a format. Four rows at once; the
// 16 lanes of a vector are these four rows by four neighbouring super-blocks of one token, or by
// four tokens at one super-block: lane 4r + i.
#pragma once

#include "kernels/prefetch-inl.h"
#include "kernels/super_block-inl.h"

namespace millrace {
namespace {

// Four rows from `row` on; past the end the last one again, whose results are dropped.
struct SuperRows {
  const std::byte* at[super_rows];
  std::size_t count;
  SuperRows(const WeightRows& weights, std::size_t row) {
    const std::size_t left = weights.rows - row;
    count = left < super_rows ? left : super_rows;
    at[0] = weights.data + row * weights.row_bytes;
    at[1] = at[0] + (count > 1 ? weights.row_bytes : 0);
    at[2] = at[1] + (count > 2 ? weights.row_bytes : 0);
    at[3] = at[2] + (count > 3 ? weights.row_bytes : 0);
  }
  void advance(std::size_t bytes) {
    for (const std::byte*& p : at) p += bytes;
  }
};

// The canonical accumulators of 16 results or of 4 classes of four results; and of their minima.
template <class Isa>
struct SuperSums {
  typename Isa::F32x16 products;
  typename Isa::F32x16 minima;
};

// One step of 16 chains: S and M are the integer sums, dw and da the scales, all in lane 4r + i.
template <class Isa, class Format>
[[gnu::always_inline]] inline void step_super(typename Isa::I32x16 products,
                                              const typename Isa::I32x16& minima,
                                              const typename Isa::I32x16& words,
                                              const typename Isa::F32x16& activation_scale,
                                              SuperSums<Isa>& acc) {
  if constexpr (code_offset<Isa, Format> != 0)
    products = Isa::sub_i(products, Isa::mul_i(minima, Isa::set1_i(code_offset<Isa, Format>)));
  const auto scale = Isa::mul(Format::template factors<Isa>(words), activation_scale);
  acc.products = Isa::fma(Isa::to_f32(products), scale, acc.products);
  if constexpr (Format::has_minima) {
    const auto minimum = Isa::mul(Format::template minimum_factors<Isa>(words), activation_scale);
    acc.minima = Isa::fma(Isa::to_f32(minima), minimum, acc.minima);
  }
}

template <class Isa, class Format>
[[gnu::always_inline]] inline typename Isa::F32x16 total_super(const SuperSums<Isa>& acc) {
  if constexpr (Format::has_minima) return Isa::sub(acc.products, acc.minima);
  else return acc.products;
}

// The scaled integer sums of four rows' super-blocks and one token, in lane 4j + r.
template <class Isa, class Format>
[[gnu::always_inline]] inline typename Isa::I32x16 dot_rows(const SuperRows& rows,
                                                            const SuperHeader<Isa>& header,
                                                            const SuperActivations<Isa>& x) {
  typename Isa::I32x16 dots[super_rows][2];
  dot_super<Isa, Format>(unpack_super<Isa, Format, 0>(rows.at[0], header), x, dots[0]);
  dot_super<Isa, Format>(unpack_super<Isa, Format, 1>(rows.at[1], header), x, dots[1]);
  dot_super<Isa, Format>(unpack_super<Isa, Format, 2>(rows.at[2], header), x, dots[2]);
  dot_super<Isa, Format>(unpack_super<Isa, Format, 3>(rows.at[3], header), x, dots[3]);
  return join_dots<Isa, Format>(dots, header);
}

// Four rows, one token.
template <class Isa, class Format>
void matvec_super(const WeightRows& weights, std::size_t row, const Q8SuperBatch& x,
                  std::size_t token, float* y) {
  constexpr bool summed = has_sums<Isa, Format>;
  const std::size_t blocks = weights.columns / super_values;
  SuperRows rows(weights, row);
  const std::int8_t* q = x.q + token * x.q_stride;
  const std::int16_t* sum = x.sum + token * x.q_stride / 16;
  const float* const scale = x.scale + token * x.block_stride;
  const std::byte* ahead = rows.at[0] + super_rows * weights.row_bytes + prefetch_distance;
  SuperSums<Isa> acc[4];  // of classes 4k .. 4k + 3
  for (auto& one : acc) one = {Isa::zero(), Isa::zero()};
  for (std::size_t b = 0; b < blocks; b += 4) {
    typename Isa::I32x16 products[4], minima[4], words[4];
    const auto one_block = [&](std::size_t i) __attribute__((always_inline)) {
      ahead = prefetch_lines<Isa, super_rows * Format::block_bytes>(ahead);
      const auto activations = load_super<Isa, Format>(q, sum);
      SuperHeader<Isa> header;
      Format::template header<Isa>(rows.at, header);
      products[i] = dot_rows<Isa, Format>(rows, header, activations);
      if constexpr (summed) minima[i] = dot_minima<Isa, Format>(header, activations.sum);
      words[i] = header.words;
      rows.advance(Format::block_bytes);
      q += super_values;
      sum += super_values / 16;
    };
    const std::size_t count = blocks - b < 4 ? blocks - b : 4;
    if (count < 4)
      for (std::size_t i = 0; i < 4; ++i) products[i] = minima[i] = words[i] = Isa::zero_i();
    for (std::size_t i = 0; i < count; ++i) one_block(i);
    step_super<Isa, Format>(Isa::group_order_i(Isa::reduce_lanes(products)),
                            summed ? Isa::reduce_quads(minima) : Isa::zero_i(),
                            Isa::template pick_words<Format::factor_word>(words),
                            Isa::repeat4(scale + b), acc[b / 4 % 4]);
  }
  // The tree over 16 classes: 4k + i with k here, then i within each row's four lanes.
  typename Isa::F32x16 part[4];
  for (std::size_t k = 0; k < 4; ++k) part[k] = total_super<Isa, Format>(acc[k]);
  auto result = Isa::add(Isa::add(part[0], part[2]), Isa::add(part[1], part[3]));
  result = Isa::add(result, Isa::swap_twos(result));
  result = Isa::add(result, Isa::swap_pairs(result));
  alignas(64) float lanes[16];
  Isa::store(lanes, result);
  for (std::size_t r = 0; r < rows.count; ++r) y[row + r] = lanes[4 * r];
}

// Four rows, `count` tokens of 2..4; the missing ones repeat the last and are dropped.
template <class Isa, class Format>
void matmul_super_tile(const WeightRows& weights, std::size_t row, const Q8SuperBatch& x,
                       std::size_t token, std::size_t count, float* y, std::size_t y_stride) {
  constexpr bool summed = has_sums<Isa, Format>;
  const std::size_t blocks = weights.columns / super_values;
  SuperRows rows(weights, row);
  const std::byte* ahead = rows.at[0] + super_rows * weights.row_bytes + prefetch_distance;
  SuperSums<Isa> acc[16];
  for (auto& one : acc) one = {Isa::zero(), Isa::zero()};
  for (std::size_t b = 0; b < blocks; ++b) {
    if (token == 0) ahead = prefetch_lines<Isa, super_rows * Format::block_bytes>(ahead);
    SuperHeader<Isa> header;
    Format::template header<Isa>(rows.at, header);
    const SuperCodes<Isa> codes[super_rows] = {unpack_super<Isa, Format, 0>(rows.at[0], header),
                                               unpack_super<Isa, Format, 1>(rows.at[1], header),
                                               unpack_super<Isa, Format, 2>(rows.at[2], header),
                                               unpack_super<Isa, Format, 3>(rows.at[3], header)};
    typename Isa::I32x16 products[4], minima[4];
    alignas(16) float scale[4];
    for (std::size_t t = 0; t < 4; ++t) {
      const std::size_t from = token + (t < count ? t : count - 1);
      const std::size_t at = from * x.q_stride + b * super_values;
      const auto activations = load_super<Isa, Format>(x.q + at, x.sum + at / 16);
      typename Isa::I32x16 dots[super_rows][2];
      for (std::size_t r = 0; r < super_rows; ++r)
        dot_super<Isa, Format>(codes[r], activations, dots[r]);
      products[t] = join_dots<Isa, Format>(dots, header);
      if constexpr (summed) minima[t] = dot_minima<Isa, Format>(header, activations.sum);
      scale[t] = x.scale[from * x.block_stride + b];
    }
    const typename Isa::I32x16 words[4] = {header.words, header.words, header.words, header.words};
    step_super<Isa, Format>(Isa::group_order_i(Isa::reduce_lanes(products)),
                            summed ? Isa::reduce_quads(minima) : Isa::zero_i(),
                            Isa::template pick_words<Format::factor_word>(words),
                            Isa::repeat4(scale), acc[b % 16]);
    rows.advance(Format::block_bytes);
  }
  typename Isa::F32x16 sum[16];
  for (std::size_t i = 0; i < 16; ++i) sum[i] = total_super<Isa, Format>(acc[i]);
  for (std::size_t half = 8; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) sum[i] = Isa::add(sum[i], sum[i + half]);
  alignas(64) float lanes[16];
  Isa::store(lanes, sum[0]);
  for (std::size_t t = 0; t < count; ++t)
    for (std::size_t r = 0; r < rows.count; ++r)
      y[(token + t) * y_stride + row + r] = lanes[4 * r + t];
}

template <class Isa, class Format>
void matmul_q8_super(const WeightRows& weights, const Q8SuperBatch& x, std::size_t tokens, float* y,
                     std::size_t y_stride) {
  for (std::size_t row = 0; row < weights.rows; row += super_rows) {
    std::size_t t = 0;
    for (; tokens - t >= 2; t += tokens - t < 4 ? tokens - t : 4)
      matmul_super_tile<Isa, Format>(weights, row, x, t, tokens - t < 4 ? tokens - t : 4, y,
                                     y_stride);
    if (t < tokens) matvec_super<Isa, Format>(weights, row, x, t, y + t * y_stride);
  }
}

// Unrounded activations: element i goes into accumulator i mod 16. Blocks are decoded into a small
// buffer first, once for all tokens of a tile.
template <class Isa, class Format, std::size_t token_count>
void float_super_tile(const WeightRows& weights, std::size_t row, const F32Batch& x,
                      std::size_t token, float* y, std::size_t y_stride) {
  SuperRows rows(weights, row);
  typename Isa::F32x16 acc[super_rows][token_count];
  for (auto& row_acc : acc)
    for (auto& one : row_acc) one = Isa::zero();
  for (std::size_t i = 0; i < weights.columns; i += super_values) {
    alignas(64) float w[super_rows][super_values];
    for (std::size_t r = 0; r < super_rows; ++r) decode_super<Isa, Format>(rows.at[r], w[r]);
    for (std::size_t j = 0; j < super_values; j += 16) {
      for (std::size_t t = 0; t < token_count; ++t) {
        const auto value = Isa::load(x.x + (token + t) * x.stride + i + j);
        for (std::size_t r = 0; r < super_rows; ++r)
          acc[r][t] = Isa::fma(Isa::load(w[r] + j), value, acc[r][t]);
      }
    }
    rows.advance(Format::block_bytes);
  }
  for (std::size_t t = 0; t < token_count; ++t)
    for (std::size_t r = 0; r < rows.count; ++r)
      y[(token + t) * y_stride + row + r] = Isa::tree_sum(acc[r][t]);
}

template <class Isa, class Format>
void matmul_f32_super(const WeightRows& weights, const F32Batch& x, std::size_t tokens, float* y,
                      std::size_t y_stride) {
  constexpr std::size_t tile = Isa::tile_tokens;
  for (std::size_t row = 0; row < weights.rows; row += super_rows) {
    std::size_t t = 0;
    for (; t + tile <= tokens; t += tile)
      float_super_tile<Isa, Format, tile>(weights, row, x, t, y, y_stride);
    for (; t < tokens; ++t) float_super_tile<Isa, Format, 1>(weights, row, x, t, y, y_stride);
  }
}

template <class Isa, class Format>
void decode_row_super(const std::byte* row, std::size_t columns, float* out) {
  for (std::size_t i = 0; i < columns; i += super_values, row += Format::block_bytes)
    decode_super<Isa, Format>(row, out + i);
}

}  // namespace
}  // namespace millrace
