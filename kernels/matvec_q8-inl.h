// Products of quantized weights with one token's 8-bit activations: decode. Here the bytes of the
// weights are the limit, so rows are read in memory order and as little as possible is done beside.
// Over an ISA policy and a block format of 32 values, like matmul_q8-inl.h.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernels/formats/mxfp4-inl.h"
#include "kernels/matmul_q8-inl.h"

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

// Rows one after the other, so that the hardware sees one stream; the activations were put
// into group order once for all of them.
inline constexpr std::size_t ordered_groups_max = 24;  // 12288 columns

template <class Isa, class Format>
[[gnu::noinline]] void matvec_in_order(const WeightRows& weights, const Q8Batch& x, float* y) {
  constexpr std::size_t group_bytes = group_blocks * Format::block_bytes;
  const std::size_t blocks = weights.columns / 32;
  const std::size_t full_groups = blocks / group_blocks;
  const std::size_t rest = blocks % group_blocks;
  GroupActivations<Isa> activations[ordered_groups_max];
  for (std::size_t g = 0; g * group_blocks < blocks; ++g)
    activations[g] = load_activations<Isa, Format>(x, 0, g);
  for (std::size_t row = 0; row < weights.rows; ++row) {
    const std::byte* group = weights.data + row * weights.row_bytes;
    GroupSums<Isa> acc;
    clear(acc);
    for (std::size_t g = 0; g < full_groups; ++g, group += group_bytes) {
      prefetch_lines<Isa, group_bytes>(group + stream_distance);
      dot_group<Isa, Format>(group, activations[g], load_joined<Isa, Format>(group, activations[g]),
                             acc);
    }
    if (rest != 0) {
      prefetch_lines<Isa, group_bytes>(group + stream_distance);
      dot_tail<Isa, Format>(weights, row, full_groups, rest, activations[full_groups], acc);
    }
    y[row] = total<Isa, Format>(acc);
  }
}

// Rows of half a group, or a quarter, that lie one behind the other: as many as make up a group go
// through it together, each in lanes of its own. Returns how many rows were computed.
template <class Isa, class Format>
[[gnu::noinline]] std::size_t matvec_short(const WeightRows& weights, const Q8Batch& x, float* y) {
  constexpr std::size_t group_bytes = group_blocks * Format::block_bytes;
  const std::size_t blocks = weights.columns / 32;
  const std::size_t together = group_blocks / blocks;
  alignas(64) std::int8_t q[group_values];
  alignas(64) float scale[group_blocks];
  alignas(64) std::int32_t sum[group_blocks];
  for (std::size_t i = 0; i < together; ++i) {
    std::memcpy(q + i * weights.columns, x.q, weights.columns);
    std::memcpy(scale + i * blocks, x.scale, blocks * sizeof(float));
    std::memcpy(sum + i * blocks, x.sum, blocks * sizeof(std::int32_t));
  }
  const auto activations =
      load_activations<Isa, Format>({q, scale, sum, group_values, group_blocks}, 0, 0);
  std::size_t row = 0;
  for (; row + together <= weights.rows; row += together) {
    const std::byte* const group = weights.data + row * weights.row_bytes;
    prefetch_lines<Isa, group_bytes>(group + stream_distance);
    GroupSums<Isa> acc;
    clear(acc);
    dot_group<Isa, Format>(group, activations, load_joined<Isa, Format>(group, activations), acc);
    alignas(64) float lanes[group_blocks];
    Isa::store(lanes, Isa::group_order(joined_sums<Isa, Format>(acc)));
    for (std::size_t i = 0; i < together; ++i)
      y[row + i] = Isa::tree_sum(Isa::load_first(lanes + i * blocks, blocks));
  }
  return row;
}

// Any number of tokens.
template <class Isa, class Format>
void product_q8(const WeightRows& weights, const Q8Batch& x, std::size_t tokens, float* y,
                std::size_t y_stride) {
  const std::size_t blocks = weights.columns / 32;
  if (tokens > 1 || blocks > ordered_groups_max * group_blocks)
    return matmul_q8<Isa, Format>(weights, x, tokens, y, y_stride);
  std::size_t done = 0;
  if ((blocks == 8 || blocks == 4) && weights.row_bytes == blocks * Format::block_bytes)
    done = matvec_short<Isa, Format>(weights, x, y);
  if (done < weights.rows)
    matvec_in_order<Isa, Format>({weights.data + done * weights.row_bytes, weights.row_bytes,
                                  weights.rows - done, weights.columns},
                                 x, y + done);
}

}  // namespace
}  // namespace millrace
