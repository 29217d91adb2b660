// Products of AWQ weights, and their decoding, over an ISA policy: the canonical dot of blocks of
// 32 columns, four of which share the weights' scale, straight from the layout of checkpoints. The
// sum of a block, of (code - zero) * q, is that of the codes less zero times the block's sum of q:
// both are whole numbers below 2^24, so float32 has them exactly.
#pragma once

#include <cstring>

#include "kernels/formats/awq-inl.h"
#include "kernels/kernel_table.h"

namespace millrace {
namespace {

// The canonical accumulators of a chunk's rows for one token.
template <class Isa>
struct AwqSums {
  typename Isa::F32x16 at[16][FormatAwq::vectors];

  void clear() {
    for (auto& one : at)
      for (auto& v : one) v = Isa::zero();
  }
  // The tree; y[row] for the first `rows` rows.
  template <std::size_t (*row_at)(std::size_t, std::size_t)>
  void finish(std::size_t rows, float* y) {
    for (std::size_t half = 8; half > 0; half /= 2)
      for (std::size_t i = 0; i < half; ++i)
        for (std::size_t v = 0; v < FormatAwq::vectors; ++v)
          at[i][v] = Isa::add(at[i][v], at[i + half][v]);
    for (std::size_t v = 0; v < FormatAwq::vectors; ++v) {
      alignas(64) float lanes[16];
      Isa::store(lanes, at[0][v]);
      for (std::size_t lane = 0; lane < 16; ++lane)
        if (const std::size_t row = row_at(v, lane); row < rows) y[row] = lanes[lane];
    }
  }
};

// The codes of a block of 32 columns, by steps of four: two in a byte, or split.
template <class Isa>
using AwqBlock = typename Isa::B64[FormatAwq::block_steps][4];
template <class Isa>
using AwqSplitBlock = typename Isa::B64[FormatAwq::block_steps][FormatAwq::vectors];

// Chunks side by side times tokens that go together. With few tokens all of a column's bytes are so
// read before those of the next, if the matrix is not wider: memory's order.
inline constexpr std::size_t awq_sums_max = 16;

// Prefetches the columns of the blocks to come in memory's order, a share with each chunk; behind
// the last column come those of the chunks beside these.
template <class Isa>
class AwqAhead {
 public:
  AwqAhead(const WeightRows& weights, std::size_t row, std::size_t chunks)
      : first_(weights.data + row / 2),
        step_(weights.row_bytes),
        columns_(weights.columns),
        chunks_(chunks),
        distance_(FormatAwq::block_columns * ((blocks_ahead + chunks - 1) / chunks)) {}

  [[gnu::always_inline]] void run(std::size_t column, std::size_t chunk) const {
    std::size_t i = column + distance_;
    const std::byte* at = first_;
    if (i >= columns_) {
      i -= columns_;
      at += chunks_ * FormatAwq::chunk_bytes;
    }
    const std::size_t begin = FormatAwq::block_columns * chunk / chunks_;
    const std::size_t end = FormatAwq::block_columns * (chunk + 1) / chunks_;
    at += (i + begin) * step_;
    for (std::size_t n = begin; n < end; ++n, at += step_)
      for (std::size_t line = 0; line < chunks_; ++line)
        Isa::prefetch(at + line * FormatAwq::chunk_bytes);
  }

 private:
  static constexpr std::size_t blocks_ahead = 8;  // of one chunk, each of 2 KiB
  const std::byte* first_;
  std::size_t step_, columns_, chunks_, distance_;
};

template <class Isa, bool whole>
[[gnu::always_inline]] inline void awq_unpack(const std::byte* p, std::size_t stride,
                                              std::size_t bytes, AwqBlock<Isa>& out) {
  for (std::size_t step = 0; step < FormatAwq::block_steps; ++step, p += 4 * stride)
    FormatAwq::columns<Isa>(p, stride, whole ? FormatAwq::chunk_bytes : bytes, out[step]);
}

// Adds one block's products of one token; code(step, vector) gives codes.
template <class Isa, class Code>
[[gnu::always_inline]] inline void awq_add_block(Code code, const FormatAwq::Scales<Isa>& scales,
                                                 const Q8Batch& x, std::size_t token, std::size_t b,
                                                 AwqSums<Isa>& sums) {
  const std::int8_t* const q = x.q + token * x.q_stride + b * FormatAwq::block_columns;
  const std::size_t at = token * x.block_stride + b;
  typename Isa::B64 a[FormatAwq::block_steps];
  for (std::size_t step = 0; step < FormatAwq::block_steps; ++step)
    a[step] = Isa::spread4(q + 4 * step);
  const auto scale = Isa::set1(x.scale[at]);
  const auto sum = Isa::set1(static_cast<float>(x.sum[at]));
  for (std::size_t v = 0; v < FormatAwq::vectors; ++v) {
    typename Isa::I32x16 dot = Isa::zero_i();
    for (std::size_t step = 0; step < FormatAwq::block_steps; step += 2)
      dot = Isa::add_i(dot, Isa::dot_u(code(step, v), a[step], code(step + 1, v), a[step + 1]));
    auto& acc = sums.at[b % 16][v];
    acc = Isa::fma(Isa::fma(scales.minus_zero[v], sum, Isa::to_f32(dot)),
                   Isa::mul(scales.scale[v], scale), acc);
  }
}

// One block of a chunk for all tokens of a tile; for several its codes are split once.
template <class Isa, bool whole>
[[gnu::always_inline]] inline void awq_block(const std::byte* p, std::size_t stride,
                                             std::size_t bytes,
                                             const FormatAwq::Scales<Isa>& scales, const Q8Batch& x,
                                             std::size_t token, std::size_t tokens, std::size_t b,
                                             AwqSums<Isa>* sums) {
  AwqBlock<Isa> block;
  awq_unpack<Isa, whole>(p, stride, bytes, block);
  if (tokens == 1) {
    const auto code = [&](std::size_t step, std::size_t v) __attribute__((always_inline)) {
      return FormatAwq::codes<Isa>(block[step][v / 2], v % 2);
    };
    return awq_add_block<Isa>(code, scales, x, token, b, *sums);
  }
  AwqSplitBlock<Isa> split;
  for (std::size_t step = 0; step < FormatAwq::block_steps; ++step)
    for (std::size_t v = 0; v < FormatAwq::vectors; ++v)
      split[step][v] = FormatAwq::codes<Isa>(block[step][v / 2], v % 2);
  const auto code = [&](std::size_t step, std::size_t v) __attribute__((always_inline)) {
    return split[step][v];
  };
  for (std::size_t t = 0; t < tokens; ++t)
    awq_add_block<Isa>(code, scales, x, token + t, b, sums[t]);
}

// `chunks` of `rows` rows (all of a chunk's, if there are several) x `tokens`: at most awq_sums_max
// of them.
template <class Isa, bool whole>
void awq_tile(const WeightRows& weights, std::size_t row, std::size_t chunks, std::size_t rows,
              const Q8Batch& x, std::size_t token, std::size_t tokens, float* y,
              std::size_t y_stride) {
  constexpr std::size_t group_blocks = FormatAwq::group_columns / FormatAwq::block_columns;
  AwqSums<Isa> sums[awq_sums_max];
  FormatAwq::Scales<Isa> scales[awq_sums_max];
  for (std::size_t i = 0; i < chunks * tokens; ++i) sums[i].clear();
  const AwqAhead<Isa> ahead(weights, row, chunks);
  for (std::size_t b = 0; b < weights.columns / FormatAwq::block_columns; ++b) {
    const std::size_t i = b * FormatAwq::block_columns;
    const std::size_t group = b / group_blocks;
    for (std::size_t c = 0; c < chunks; ++c) {
      const std::size_t at = row + c * FormatAwq::chunk_rows;
      if (b % group_blocks == 0)
        FormatAwq::load_scales<Isa>(weights.scales + group * weights.scale_row_bytes + 2 * at,
                                    weights.zeros + group * weights.row_bytes + at / 2, rows,
                                    scales[c]);
      if (token == 0) ahead.run(i, c);
      awq_block<Isa, whole>(weights.data + i * weights.row_bytes + at / 2, weights.row_bytes,
                            rows / 2, scales[c], x, token, tokens, b, sums + c * tokens);
    }
  }
  for (std::size_t c = 0; c < chunks; ++c)
    for (std::size_t t = 0; t < tokens; ++t)
      sums[c * tokens + t].template finish<&FormatAwq::row_at>(
          rows, y + (token + t) * y_stride + row + c * FormatAwq::chunk_rows);
}

template <class Isa>
void matmul_awq(const WeightRows& weights, const Q8Batch& x, std::size_t tokens, float* y,
                std::size_t y_stride) {
  constexpr std::size_t chunk = FormatAwq::chunk_rows;
  const std::size_t all = weights.rows / chunk;
  const std::size_t rest = weights.rows % chunk;
  const auto least = [](std::size_t a, std::size_t b) { return a < b ? a : b; };
  const std::size_t chunks_max = tokens < awq_sums_max ? awq_sums_max / tokens : 1;
  for (std::size_t c = 0; c < all;) {
    const std::size_t chunks = least(chunks_max, all - c);
    for (std::size_t t = 0; t < tokens; t += awq_sums_max)
      awq_tile<Isa, true>(weights, c * chunk, chunks, chunk, x, t, least(awq_sums_max, tokens - t),
                          y, y_stride);
    c += chunks;
  }
  for (std::size_t t = 0; rest != 0 && t < tokens; t += awq_sums_max)
    awq_tile<Isa, false>(weights, all * chunk, 1, rest, x, t, least(awq_sums_max, tokens - t), y,
                         y_stride);
}

// --- unrounded activations: lanes are words, vectors their nibbles ---

template <class Isa>
struct AwqFloatScales {
  typename Isa::F32x16 scale[FormatAwq::vectors];
  typename Isa::I32x16 zero[FormatAwq::vectors];
};

template <class Isa>
[[gnu::always_inline]] inline void awq_nibbles(const std::byte* p, std::size_t bytes,
                                               typename Isa::I32x16 (&out)[FormatAwq::vectors]) {
  std::int32_t words[16] = {};
  std::memcpy(words, p, bytes);
  auto rest = Isa::load_i(words);
  for (auto& one : out) {
    one = Isa::and_i(rest, Isa::set1_i(15));
    rest = Isa::template shr_i<4>(rest);
  }
}

template <class Isa, std::size_t tokens>
void awq_float_tile(const WeightRows& weights, std::size_t row, std::size_t rows, const F32Batch& x,
                    std::size_t token, float* y, std::size_t y_stride) {
  AwqSums<Isa> sums[tokens];
  for (auto& one : sums) one.clear();
  AwqFloatScales<Isa> scales;
  for (std::size_t i = 0; i < weights.columns; ++i) {
    const std::size_t group = i / FormatAwq::group_columns;
    if (i % FormatAwq::group_columns == 0) {
      FormatAwq::scales_of_words<Isa>(weights.scales + group * weights.scale_row_bytes + 2 * row,
                                      rows, scales.scale);
      awq_nibbles<Isa>(weights.zeros + group * weights.row_bytes + row / 2, rows / 2, scales.zero);
    }
    const std::byte* const at = weights.data + i * weights.row_bytes + row / 2;
    typename Isa::I32x16 codes[FormatAwq::vectors];
    awq_nibbles<Isa>(at, rows / 2, codes);
    for (std::size_t v = 0; v < FormatAwq::vectors; ++v) {
      const auto w = Isa::mul(Isa::to_f32(Isa::sub_i(codes[v], scales.zero[v])), scales.scale[v]);
      for (std::size_t t = 0; t < tokens; ++t) {
        auto& acc = sums[t].at[i % 16][v];
        acc = Isa::fma(w, Isa::set1(x.x[(token + t) * x.stride + i]), acc);
      }
    }
  }
  for (std::size_t t = 0; t < tokens; ++t)
    sums[t].template finish<&FormatAwq::row_of_word>(rows, y + (token + t) * y_stride + row);
}

template <class Isa>
void matmul_awq_f32(const WeightRows& weights, const F32Batch& x, std::size_t tokens, float* y,
                    std::size_t y_stride) {
  constexpr std::size_t tile = 4;
  for (std::size_t row = 0; row < weights.rows; row += FormatAwq::chunk_rows) {
    const std::size_t left = weights.rows - row;
    const std::size_t rows = left < FormatAwq::chunk_rows ? left : FormatAwq::chunk_rows;
    std::size_t t = 0;
    for (; t + tile <= tokens; t += tile)
      awq_float_tile<Isa, tile>(weights, row, rows, x, t, y, y_stride);
    for (; t < tokens; ++t) awq_float_tile<Isa, 1>(weights, row, rows, x, t, y, y_stride);
  }
}

// One row, value by value: its codes lie apart.
template <class Isa>
void decode_awq(const WeightRows& weights, std::size_t row, float* out) {
  std::size_t nibble = 0;
  while (awq_row_order[nibble] != row % FormatAwq::word_rows) ++nibble;
  const auto code = [&](const std::byte* column) {
    std::uint32_t word;
    std::memcpy(&word, column + row / FormatAwq::word_rows * sizeof word, sizeof word);
    return static_cast<std::int32_t>(word >> 4 * nibble & 15);
  };
  float scale = 0;
  std::int32_t zero = 0;
  for (std::size_t i = 0; i < weights.columns; ++i) {
    if (i % FormatAwq::group_columns == 0) {
      const std::size_t group = i / FormatAwq::group_columns;
      std::uint16_t half;
      std::memcpy(&half, weights.scales + group * weights.scale_row_bytes + 2 * row, sizeof half);
      scale = Isa::half_to_float(half);
      zero = code(weights.zeros + group * weights.row_bytes);
    }
    out[i] = static_cast<float>(code(weights.data + i * weights.row_bytes) - zero) * scale;
  }
}

}  // namespace
}  // namespace millrace
