// Products of quantized weights with one token's 8-bit activations: decode. Here the bytes of the
// weights are the limit, so rows are read in memory order and as little as possible is done beside.
// Over an ISA policy and a block format of 32 values, like matmul_q8-inl.h.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/formats/mxfp4-inl.h"
#include "kernels/matmul_q8-inl.h"
#include "kernels/row_totals-inl.h"
#include "kernels/two_tokens-inl.h"

namespace millrace {
namespace {

// join_scales() straight from memory. Powers of two have a shorter way where the ISA scales by them
// in one step.
template <class Isa, class Format>
[[gnu::always_inline]] inline GroupScales<Isa> load_joined(const std::byte* group,
                                                           const GroupActivations<Isa>& x) {
  if constexpr (std::is_same_v<Format, FormatMxfp4> && requires { Isa::scales_by_powers; }) {
    const auto e = Isa::template gather_u8<Format::block_bytes>(group);
    GroupScales<Isa> out;
    out.scale = Isa::scale_by_power(x.scale, Isa::to_f32(Isa::sub_i(e, Isa::set1_i(128))));
    return out;
  } else {
    return join_scales<Isa, Format>(load_scales<Isa, Format>(group), x);
  }
}

// The last, partial group of one row: the first `blocks` of its blocks.
template <class Isa, class Format>
[[gnu::always_inline]] inline void dot_tail(const WeightRows& weights, std::size_t row,
                                            std::size_t full_groups, std::size_t blocks,
                                            const GroupActivations<Isa>& x, GroupSums<Isa>& acc) {
  const TailGroup<Format> tail(weights, row, full_groups, blocks);
  const auto scales = first_scales<Isa, Format>(load_scales<Isa, Format>(tail.data()), blocks);
  const auto joined = join_scales<Isa, Format>(scales, x);
  if (blocks <= 4) dot_group<Isa, Format, 1>(tail.data(), x, joined, acc);
  else if (blocks <= 8) dot_group<Isa, Format, 2>(tail.data(), x, joined, acc);
  else dot_group<Isa, Format>(tail.data(), x, joined, acc);
}

inline constexpr std::size_t ordered_groups_max = 24;  // 12288 columns

// How many rows make up whole groups, read as one stream of blocks; 1 where they are not close
// together, shorter than a group, or too many, or where there are too few of them to make up for
// activations that are repeated for each.
template <class Format>
std::size_t rows_of_stream(const WeightRows& weights) {
  const std::size_t blocks = weights.columns / 32;
  const std::size_t even = blocks & (~blocks + 1);  // the largest power of two that divides blocks
  const std::size_t rows = even < group_blocks ? group_blocks / even : 1;
  const bool close = weights.row_bytes == blocks * Format::block_bytes;
  const bool fits = rows * blocks <= ordered_groups_max * group_blocks;
  const bool enough = weights.rows >= 8 * rows;
  return close && fits && enough && blocks >= group_blocks ? rows : 1;
}

// The activations of `rows` rows one behind the other, in group order.
template <class Isa, class Format>
[[gnu::always_inline]] inline void order_activations(const Q8Batch& x, std::size_t blocks,
                                                     std::size_t rows, GroupActivations<Isa>* out) {
  constexpr std::size_t all = ordered_groups_max * group_blocks;
  const std::size_t groups = (rows * blocks + group_blocks - 1) / group_blocks;
  if (rows == 1) {
    for (std::size_t g = 0; g < groups; ++g) out[g] = load_activations<Isa, Format>(x, 0, g);
    return;
  }
  alignas(64) std::int8_t q[all * 32];
  alignas(64) float scale[all];
  alignas(64) std::int32_t sum[all];
  for (std::size_t row = 0; row < rows; ++row) {
    std::memcpy(q + row * blocks * 32, x.q, blocks * 32);
    std::memcpy(scale + row * blocks, x.scale, blocks * sizeof(float));
    std::memcpy(sum + row * blocks, x.sum, blocks * sizeof(std::int32_t));
  }
  const Q8Batch repeated = {q, scale, sum, all * 32, all};
  for (std::size_t g = 0; g < groups; ++g) out[g] = load_activations<Isa, Format>(repeated, 0, g);
}

// What a group that two rows share gives to both: the blocks' dots, and the scales of both sides.
template <class Isa>
struct SharedGroup {
  typename Isa::F32x16 dots;
  GroupScales<Isa> joined;
};

template <class Isa, class Format>
[[gnu::always_inline]] inline SharedGroup<Isa> share_group(const std::byte* group,
                                                           const GroupActivations<Isa>& x) {
  typename Isa::I32x16 sums[4];
  dot_quads<Isa, Format>(group, x, sums);
  return {Isa::to_f32(block_dots<Isa, Format>(sums, x)), load_joined<Isa, Format>(group, x)};
}

// The lanes of the group's blocks from `n` on; the others become +0.
template <class Isa>
[[gnu::always_inline]] inline typename Isa::F32x16 last_blocks(const typename Isa::F32x16& a,
                                                               std::size_t n) {
  return Isa::from_bits(Isa::xor_i(Isa::bits(a), Isa::bits(Isa::first_blocks(a, n))));
}

// Adds the first `n` blocks of a shared group (`last`: those behind them) to a row. The others'
// dots are numbers, so that a scale of +0 takes them out, and no lane is ever -0 (a dot is whole).
template <class Isa, class Format, bool last>
[[gnu::always_inline]] inline void add_part(const SharedGroup<Isa>& group, std::size_t n,
                                            const GroupActivations<Isa>& x, GroupSums<Isa>& acc) {
  const auto part = [n](const auto& a) __attribute__((always_inline)) {
    if constexpr (last) return last_blocks<Isa>(a, n);
    else return Isa::first_blocks(a, n);
  };
  acc.products = Isa::fma(group.dots, part(group.joined.scale), acc.products);
  if constexpr (has_minima<Isa, Format>)
    acc.minima = Isa::fma(x.sum, part(group.joined.minimum), acc.minima);
}

// The whole groups of a row, one behind the other. Moves `group` and `activations` on.
template <class Isa, class Format>
[[gnu::always_inline]] inline void add_groups(std::size_t groups, const std::byte*& group,
                                              const GroupActivations<Isa>*& activations,
                                              GroupSums<Isa>& acc) {
  constexpr std::size_t group_bytes = group_blocks * Format::block_bytes;
  for (const auto* const end = activations + groups; activations != end;
       group += group_bytes, ++activations) {
    prefetch_lines<Isa, group_bytes>(group + stream_distance);
    dot_group<Isa, Format>(group, *activations, load_joined<Isa, Format>(group, *activations), acc);
  }
}

// Rows that make up whole groups together. Row after row lies in the lanes that its blocks have in
// the stream: its canonical lanes, turned around by some number. The canonical tree adds lanes that
// are 8, 4, 2 and 1 apart, so it gives the same bits however they are turned.
template <class Isa, class Format>
[[gnu::always_inline]] inline void stream_rows(const std::byte* group, std::size_t blocks,
                                               std::size_t rows,
                                               const GroupActivations<Isa>* activations,
                                               RowTotals<Isa>& totals) {
  constexpr std::size_t group_bytes = group_blocks * Format::block_bytes;
  SharedGroup<Isa> shared;
  std::size_t begin = 0;  // of the row, in the group that it shares with the row before
  for (std::size_t row = 0; row < rows; ++row) {
    GroupSums<Isa> acc;
    clear(acc);
    std::size_t left = blocks;
    if (begin != 0) {
      add_part<Isa, Format, true>(shared, begin, activations[-1], acc);
      left -= group_blocks - begin;
    }
    add_groups<Isa, Format>(left / group_blocks, group, activations, acc);
    begin = left % group_blocks;
    if (begin != 0) {
      prefetch_lines<Isa, group_bytes>(group + stream_distance);
      shared = share_group<Isa, Format>(group, *activations);
      add_part<Isa, Format, false>(shared, begin, *activations, acc);
      group += group_bytes;
      ++activations;
    }
    totals.add(joined_sums<Isa, Format>(acc));
  }
}

// Returns how many rows were computed.
template <class Isa, class Format>
[[gnu::noinline]] std::size_t matvec_shared(const WeightRows& weights, std::size_t together,
                                            const GroupActivations<Isa>* activations, float* y) {
  RowTotals<Isa> totals(y);
  std::size_t row = 0;
  for (; row + together <= weights.rows; row += together)
    stream_rows<Isa, Format>(weights.data + row * weights.row_bytes, weights.columns / 32, together,
                             activations, totals);
  totals.finish();
  return row;
}

// Rows of whole groups.
template <class Isa, class Format>
[[gnu::noinline]] void matvec_whole(const WeightRows& weights,
                                    const GroupActivations<Isa>* activations, float* y) {
  const std::size_t groups = weights.columns / group_values;
  RowTotals<Isa> totals(y);
  for (std::size_t row = 0; row < weights.rows; ++row) {
    const std::byte* group = weights.data + row * weights.row_bytes;
    const GroupActivations<Isa>* of_row = activations;
    GroupSums<Isa> acc;
    clear(acc);
    add_groups<Isa, Format>(groups, group, of_row, acc);
    totals.add(joined_sums<Isa, Format>(acc));
  }
  totals.finish();
}

// A row whose last group is partial, by itself.
template <class Isa, class Format>
[[gnu::always_inline]] inline void single_row(const WeightRows& weights, std::size_t row,
                                              const GroupActivations<Isa>* activations, float* y) {
  constexpr std::size_t group_bytes = group_blocks * Format::block_bytes;
  const std::size_t full_groups = weights.columns / group_values;
  const std::byte* group = weights.data + row * weights.row_bytes;
  GroupSums<Isa> acc;
  clear(acc);
  add_groups<Isa, Format>(full_groups, group, activations, acc);
  prefetch_lines<Isa, group_bytes>(group + stream_distance);
  dot_tail<Isa, Format>(weights, row, full_groups, weights.columns / 32 % group_blocks,
                        *activations, acc);
  y[row] = total<Isa, Format>(acc);
}

// Rows one after the other, so that the hardware sees one stream; the activations were put
// into group order once for all of them.
template <class Isa, class Format>
[[gnu::noinline]] void matvec_in_order(const WeightRows& weights, const Q8Batch& x, float* y) {
  const std::size_t blocks = weights.columns / 32;
  const std::size_t together = rows_of_stream<Format>(weights);
  GroupActivations<Isa> activations[ordered_groups_max];
  order_activations<Isa, Format>(x, blocks, together, activations);
  if (blocks % group_blocks == 0) return matvec_whole<Isa, Format>(weights, activations, y);
  std::size_t row = 0;
  if (together > 1) row = matvec_shared<Isa, Format>(weights, together, activations, y);
  for (; row < weights.rows; ++row) single_row<Isa, Format>(weights, row, activations, y);
}

// Rows of half a group, or a quarter, that lie one behind the other: as many as make up a group go
// through it together, each in lanes of its own. Returns how many rows were computed.
template <class Isa, class Format, std::size_t together>
[[gnu::noinline]] std::size_t matvec_short(const WeightRows& weights, const Q8Batch& x, float* y) {
  constexpr std::size_t group_bytes = group_blocks * Format::block_bytes;
  GroupActivations<Isa> activations;
  order_activations<Isa, Format>(x, group_blocks / together, together, &activations);
  RowTotals<Isa, together> totals(y);
  std::size_t row = 0;
  for (; row + together <= weights.rows; row += together) {
    const std::byte* const group = weights.data + row * weights.row_bytes;
    prefetch_lines<Isa, group_bytes>(group + stream_distance);
    GroupSums<Isa> acc;
    clear(acc);
    dot_group<Isa, Format>(group, activations, load_joined<Isa, Format>(group, activations), acc);
    totals.add(joined_sums<Isa, Format>(acc));
  }
  totals.finish();
  return row;
}

template <class Isa, class Format>
[[gnu::noinline]] void matvec_q8(const WeightRows& weights, const Q8Batch& x, float* y) {
  const std::size_t blocks = weights.columns / 32;
  std::size_t done = 0;
  if (weights.row_bytes == blocks * Format::block_bytes) {
    if (blocks == 8) done = matvec_short<Isa, Format, 2>(weights, x, y);
    if (blocks == 4) done = matvec_short<Isa, Format, 4>(weights, x, y);
  }
  if (done < weights.rows)
    matvec_in_order<Isa, Format>({weights.data + done * weights.row_bytes, weights.row_bytes,
                                  weights.rows - done, weights.columns},
                                 x, y + done);
}

// Any number of tokens.
template <class Isa, class Format>
void product_q8(const WeightRows& weights, const Q8Batch& x, std::size_t tokens, float* y,
                std::size_t y_stride) {
  const bool ordered = weights.columns <= ordered_groups_max * group_values;
  if (tokens == 1 && ordered) return matvec_q8<Isa, Format>(weights, x, y);
  if constexpr (unpacks_quickly<Format>) {
    if (tokens == 2 && ordered)
      return two_tokens(weights, [&](const WeightRows& rows, std::size_t row, std::size_t token) {
        const Q8Batch one = {x.q + token * x.q_stride, x.scale + token * x.block_stride,
                             x.sum + token * x.block_stride, x.q_stride, x.block_stride};
        matvec_q8<Isa, Format>(rows, one, y + token * y_stride + row);
      });
  }
  matmul_q8<Isa, Format>(weights, x, tokens, y, y_stride);
}

}  // namespace
}  // namespace millrace
