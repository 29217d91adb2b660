// Products of quantized weights and 8-bit activations, over an ISA policy and a block format of 32
// values. A group is 16 blocks: its 16 block sums, scales and accumulators are one vector each, in
// the policy's group order, and lane b of the canonical arithmetic is the group's block b.
#pragma once

#include <cstring>

#include "kernels/kernel_table.h"
#include "kernels/prefetch-inl.h"

namespace millrace {
namespace {

inline constexpr std::size_t group_blocks = 16;
inline constexpr std::size_t group_values = 512;

// Formats whose elements are d * code + m.
template <class Isa, class Format>
inline constexpr bool has_minima = requires(const std::byte* group) {
  Format::template minima<Isa>(group);
};

// One token's activations of one group, in group order.
template <class Isa>
struct GroupActivations {
  typename Isa::Q8Group q;
  typename Isa::F32x16 scale;
  typename Isa::I32x16 surplus;  // what the format's unsigned codes add to each block's sum
  typename Isa::F32x16 sum;      // only with minima
};

// The scales, and with minima the minima, of one row's group.
template <class Isa>
struct GroupScales {
  typename Isa::F32x16 scale;
  typename Isa::F32x16 minimum;
};

// One row's weights of one group, unpacked.
template <class Isa>
struct GroupWeights {
  typename Isa::B64 lo[4];
  typename Isa::B64 hi[4];
  GroupScales<Isa> scales;
};

// The 16 canonical accumulators of one result, and those of its minima.
template <class Isa>
struct GroupSums {
  typename Isa::F32x16 products;
  typename Isa::F32x16 minima;
};

template <class Isa, class Format>
[[gnu::always_inline]] inline GroupActivations<Isa> load_activations(const Q8Batch& x,
                                                                     std::size_t token,
                                                                     std::size_t group) {
  const std::size_t block = token * x.block_stride + group * group_blocks;
  GroupActivations<Isa> out;
  out.q = Isa::load_group(x.q + token * x.q_stride + group * group_values);
  out.scale = Isa::group_order(Isa::load(x.scale + block));
  constexpr std::int32_t offset = Format::template offset<Isa>;
  if constexpr (offset != 0)
    out.surplus = Isa::mul_i(Isa::set1_i(offset), Isa::group_order_i(Isa::load_i(x.sum + block)));
  if constexpr (has_minima<Isa, Format>)
    out.sum = Isa::group_order(Isa::to_f32(Isa::load_i(x.sum + block)));
  return out;
}

template <class Isa, class Format>
[[gnu::always_inline]] inline GroupScales<Isa> load_scales(const std::byte* group) {
  GroupScales<Isa> out;
  out.scale = Format::template scales<Isa>(group);
  if constexpr (has_minima<Isa, Format>) out.minimum = Format::template minima<Isa>(group);
  return out;
}

// Those of the first `blocks` blocks; the others become +0.
template <class Isa, class Format>
[[gnu::always_inline]] inline GroupScales<Isa> first_scales(GroupScales<Isa> scales,
                                                            std::size_t blocks) {
  scales.scale = Isa::first_blocks(scales.scale, blocks);
  if constexpr (has_minima<Isa, Format>) scales.minimum = Isa::first_blocks(scales.minimum, blocks);
  return scales;
}

// The group's scales (and minima) times those of the activations.
template <class Isa, class Format>
[[gnu::always_inline]] inline GroupScales<Isa> join_scales(const GroupScales<Isa>& w,
                                                           const GroupActivations<Isa>& x) {
  GroupScales<Isa> out;
  out.scale = Isa::mul(w.scale, x.scale);
  if constexpr (has_minima<Isa, Format>) out.minimum = Isa::mul(w.minimum, x.scale);
  return out;
}

template <class Isa>
[[gnu::always_inline]] inline void clear(GroupSums<Isa>& acc) {
  acc.products = Isa::zero();
  acc.minima = Isa::zero();
}

template <class Isa, class Format>
[[gnu::always_inline]] inline typename Isa::F32x16 joined_sums(const GroupSums<Isa>& acc) {
  if constexpr (has_minima<Isa, Format>) return Isa::add(acc.products, acc.minima);
  else return acc.products;
}

template <class Isa, class Format>
[[gnu::always_inline]] inline float total(const GroupSums<Isa>& acc) {
  return Isa::tree_sum(Isa::group_order(joined_sums<Isa, Format>(acc)));
}

// The sums of the group's blocks. A format may say how large its unsigned codes are.
template <class Isa, class Format>
[[gnu::always_inline]] inline typename Isa::I32x16 block_sums(
    const typename Isa::I32x16 (&sums)[4]) {
  if constexpr (requires { Isa::template reduce_small_quads<Format::largest>(sums); })
    return Isa::template reduce_small_quads<Format::largest>(sums);
  else return Isa::reduce_quads(sums);
}

// Each block's dot with the activations.
template <class Isa, class Format>
[[gnu::always_inline]] inline typename Isa::I32x16 block_dots(const typename Isa::I32x16 (&sums)[4],
                                                              const GroupActivations<Isa>& x) {
  const auto sum = block_sums<Isa, Format>(sums);
  if constexpr (Format::template offset<Isa> != 0) return Isa::sub_i(sum, x.surplus);
  else return sum;
}

// Adds the group's 16 products to acc; `sums` are the dots of the four quads, `joined` the scales
// of both sides.
template <class Isa, class Format>
[[gnu::always_inline]] inline void finish_group(const typename Isa::I32x16 (&sums)[4],
                                                const GroupScales<Isa>& joined,
                                                const GroupActivations<Isa>& x,
                                                GroupSums<Isa>& acc) {
  const auto dots = block_dots<Isa, Format>(sums, x);
  acc.products = Isa::fma(Isa::to_f32(dots), joined.scale, acc.products);
  if constexpr (has_minima<Isa, Format>) acc.minima = Isa::fma(x.sum, joined.minimum, acc.minima);
}

// The dots of a group's quads; weights go straight from memory into them. Only the first `quads`
// quads hold blocks of the row.
template <class Isa, class Format, int quads = 4>
[[gnu::always_inline]] inline void dot_quads(const std::byte* group, const GroupActivations<Isa>& x,
                                             typename Isa::I32x16 (&sums)[4]) {
  for (int quad = quads; quad < 4; ++quad) sums[quad] = Isa::zero_i();
  for (int quad = 0; quad < quads; ++quad) {
    typename Isa::B64 lo, hi;
    Format::template codes<Isa>(group + 4 * quad * Format::block_bytes, lo, hi);
    sums[quad] = Format::template dot<Isa>(lo, x.q.lo[quad], hi, x.q.hi[quad]);
  }
}

// One row, one token, one group.
template <class Isa, class Format, int quads = 4>
[[gnu::always_inline]] inline void dot_group(const std::byte* group, const GroupActivations<Isa>& x,
                                             const GroupScales<Isa>& joined, GroupSums<Isa>& acc) {
  typename Isa::I32x16 sums[4];
  dot_quads<Isa, Format, quads>(group, x, sums);
  finish_group<Isa, Format>(sums, joined, x, acc);
}

// The last, partial group of a row. Its blocks past the row's end meet zero activations, so
// whatever lies there is harmless, but their scales must be dropped and nothing past the weights
// may be read.
template <class Format>
class TailGroup {
 public:
  TailGroup(const WeightRows& weights, std::size_t row, std::size_t full_groups, std::size_t blocks)
      : at_(weights.data + row * weights.row_bytes + full_groups * bytes) {
    const auto left =
        static_cast<std::size_t>(weights.data + weights.rows * weights.row_bytes - at_);
    if (left >= bytes) return;
    std::memset(copy_, 0, bytes);
    std::memcpy(copy_, at_, blocks * Format::block_bytes);
    at_ = copy_;
  }
  TailGroup(const TailGroup&) = delete;
  TailGroup& operator=(const TailGroup&) = delete;
  const std::byte* data() const { return at_; }

 private:
  static constexpr std::size_t bytes = group_blocks * Format::block_bytes;
  const std::byte* at_;
  std::byte copy_[bytes];
};

// Decode: `count` rows at once for one token. The activations of a group are loaded once for all
// of them, and their chains of fma overlap.
template <class Isa, class Format, std::size_t count>
void matvec_rows(const WeightRows& weights, std::size_t row, const Q8Batch& x, float* y) {
  constexpr std::size_t group_bytes = group_blocks * Format::block_bytes;
  const std::size_t blocks = weights.columns / 32;
  const std::size_t full_groups = blocks / group_blocks;
  const std::size_t rest = blocks % group_blocks;
  const std::byte* const first = weights.data + row * weights.row_bytes;
  const std::byte* ahead = first + count * weights.row_bytes + prefetch_distance;
  GroupSums<Isa> acc[count];
  for (auto& one : acc) clear(one);
  for (std::size_t g = 0; g < full_groups; ++g) {
    const auto activations = load_activations<Isa, Format>(x, 0, g);
    for (std::size_t r = 0; r < count; ++r) {
      const std::byte* group = first + r * weights.row_bytes + g * group_bytes;
      ahead = prefetch_lines<Isa, group_bytes>(ahead);
      dot_group<Isa, Format>(group, activations,
                             join_scales<Isa, Format>(load_scales<Isa, Format>(group), activations),
                             acc[r]);
    }
  }
  if (rest != 0) {
    const auto activations = load_activations<Isa, Format>(x, 0, full_groups);
    for (std::size_t r = 0; r < count; ++r) {
      prefetch_lines<Isa, group_bytes>(ahead);
      ahead += rest * Format::block_bytes;
      const TailGroup<Format> tail(weights, row + r, full_groups, rest);
      const auto scales = join_scales<Isa, Format>(
          first_scales<Isa, Format>(load_scales<Isa, Format>(tail.data()), rest), activations);
      if (rest <= 8) dot_group<Isa, Format, 2>(tail.data(), activations, scales, acc[r]);
      else dot_group<Isa, Format>(tail.data(), activations, scales, acc[r]);
    }
  }
  for (std::size_t r = 0; r < count; ++r) y[row + r] = total<Isa, Format>(acc[r]);
}

template <class Isa, class Format>
[[gnu::always_inline]] inline void unpack_group(const std::byte* group, GroupWeights<Isa>& out) {
  for (int quad = 0; quad < 4; ++quad)
    Format::template codes<Isa>(group + 4 * quad * Format::block_bytes, out.lo[quad], out.hi[quad]);
  out.scales = load_scales<Isa, Format>(group);
}

template <class Isa, class Format>
[[gnu::always_inline]] inline void dot_unpacked(const GroupWeights<Isa>& w,
                                                const GroupActivations<Isa>& x,
                                                GroupSums<Isa>& acc) {
  typename Isa::I32x16 sums[4];
  for (int quad = 0; quad < 4; ++quad)
    sums[quad] = Format::template dot<Isa>(w.lo[quad], x.q.lo[quad], w.hi[quad], x.q.hi[quad]);
  finish_group<Isa, Format>(sums, join_scales<Isa, Format>(w.scales, x), x, acc);
}

// Several tokens: a tile of row_count x token_count accumulators. Weights of a group are unpacked
// once per tile, activations put into group order once per tile.
template <class Isa, class Format, std::size_t row_count, std::size_t token_count>
void matmul_tile(const WeightRows& weights, std::size_t row, const Q8Batch& x, std::size_t token,
                 float* y, std::size_t y_stride) {
  constexpr std::size_t group_bytes = group_blocks * Format::block_bytes;
  const std::size_t blocks = weights.columns / 32;
  const std::size_t full_groups = blocks / group_blocks;
  const std::size_t rest = blocks % group_blocks;
  const std::byte* ahead = weights.data + (row + row_count) * weights.row_bytes + prefetch_distance;
  GroupSums<Isa> acc[row_count][token_count];
  for (auto& row_acc : acc)
    for (auto& one : row_acc) clear(one);
  for (std::size_t g = 0; g * group_blocks < blocks; ++g) {
    GroupActivations<Isa> activations[token_count];
    for (std::size_t t = 0; t < token_count; ++t)
      activations[t] = load_activations<Isa, Format>(x, token + t, g);
    for (std::size_t r = 0; r < row_count; ++r) {
      if (token == 0) ahead = prefetch_lines<Isa, group_bytes>(ahead);
      GroupWeights<Isa> w;
      if (g < full_groups) {
        unpack_group<Isa, Format>(weights.data + (row + r) * weights.row_bytes + g * group_bytes,
                                  w);
      } else {
        const TailGroup<Format> tail(weights, row + r, full_groups, rest);
        unpack_group<Isa, Format>(tail.data(), w);
        w.scales = first_scales<Isa, Format>(w.scales, rest);
      }
      for (std::size_t t = 0; t < token_count; ++t)
        dot_unpacked<Isa, Format>(w, activations[t], acc[r][t]);
    }
  }
  for (std::size_t r = 0; r < row_count; ++r)
    for (std::size_t t = 0; t < token_count; ++t)
      y[(token + t) * y_stride + row + r] = total<Isa, Format>(acc[r][t]);
}

template <class Isa, class Format, std::size_t row_count>
void matmul_rows(const WeightRows& weights, std::size_t row, const Q8Batch& x, std::size_t tokens,
                 float* y, std::size_t y_stride) {
  constexpr std::size_t tile = Isa::tile_tokens;
  std::size_t t = 0;
  for (; t + tile <= tokens; t += tile)
    matmul_tile<Isa, Format, row_count, tile>(weights, row, x, t, y, y_stride);
  for (; t < tokens; ++t) matmul_tile<Isa, Format, row_count, 1>(weights, row, x, t, y, y_stride);
}

template <class Isa, class Format>
void matmul_q8(const WeightRows& weights, const Q8Batch& x, std::size_t tokens, float* y,
               std::size_t y_stride) {
  std::size_t row = 0;
  if (tokens == 1) {
    for (; row + Isa::matvec_rows <= weights.rows; row += Isa::matvec_rows)
      matvec_rows<Isa, Format, Isa::matvec_rows>(weights, row, x, y);
    for (; row < weights.rows; ++row) matvec_rows<Isa, Format, 1>(weights, row, x, y);
    return;
  }
  for (; row + Isa::tile_rows <= weights.rows; row += Isa::tile_rows)
    matmul_rows<Isa, Format, Isa::tile_rows>(weights, row, x, tokens, y, y_stride);
  for (; row < weights.rows; ++row)
    matmul_rows<Isa, Format, 1>(weights, row, x, tokens, y, y_stride);
}

}  // namespace
}  // namespace millrace
