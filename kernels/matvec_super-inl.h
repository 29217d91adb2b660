// Products of super-blocks of 256 values with one token's activations: decode. Rows go one after
// the other, a single stream for the hardware; what four rows are in matmul_super-inl.h, four
// neighbouring super-blocks of a row (a quad) are here.
#pragma once

#include "kernels/matmul_super-inl.h"
#include "kernels/row_totals-inl.h"
#include "kernels/two_tokens-inl.h"

namespace millrace {
namespace {

inline constexpr std::size_t ordered_supers_max = 48;  // 12288 columns
inline constexpr std::size_t group_supers = 16;

// Prefetches the lines of the weights, stream_distance ahead.
template <class Isa>
class PrefetchStream {
 public:
  explicit PrefetchStream(const std::byte* first) : next_(first + stream_distance) {}
  // The work goes on up to `end`.
  [[gnu::always_inline]] void work_up_to(const std::byte* end) {
    for (; next_ < end + stream_distance; next_ += 64) Isa::prefetch(next_);
  }
  // Others have prefetched for the work up to `end`.
  [[gnu::always_inline]] void skip_to(const std::byte* end) { next_ = end + stream_distance; }

 private:
  const std::byte* next_;
};

// One token's activations, brought into order once for all rows. Where rows are shorter than a
// group, as many as it holds go through it together: the activations are repeated for each of them.
template <class Isa>
struct OrderedSupers {
  SuperActivations<Isa> block[ordered_supers_max];
  typename Isa::B64 sum[ordered_supers_max / 4][2];               // lane r: of block r of a quad
  typename Isa::F32x16 scale[ordered_supers_max / group_supers];  // in group order
};

// A block's sums, as dot_minima() takes those of a quad: lane r has block r's.
template <class Format>
[[gnu::always_inline]] inline void place_sums(const std::int16_t* sum, std::size_t r,
                                              std::int16_t (&out)[2][32]) {
  for (std::size_t i = 0; i < Format::sub_scales; ++i) {
    std::int32_t one = sum[16 / Format::sub_scales * i];
    if (Format::sub_scales == 8) one += sum[2 * i + 1];
    out[i / 8][8 * r + i % 8] = static_cast<std::int16_t>(one);
  }
}

template <class Isa, class Format>
[[gnu::always_inline]] inline void order_supers(const Q8SuperBatch& x, std::size_t blocks,
                                                std::size_t rows, OrderedSupers<Isa>& out) {
  alignas(64) std::int16_t sums[ordered_supers_max / 4][2][32] = {};
  alignas(64) float scale[ordered_supers_max] = {};
  for (std::size_t at = 0; at < rows * blocks; ++at) {
    const std::size_t b = at % blocks;
    const std::int16_t* const sum = x.sum + b * super_values / 16;
    out.block[at] = load_super<Isa, Format>(x.q + b * super_values, sum);
    place_sums<Format>(sum, at % 4, sums[at / 4]);
    scale[at] = x.scale[b];
  }
  for (std::size_t quad = 0; quad < ordered_supers_max / 4; ++quad)
    for (std::size_t half = 0; half < 2; ++half)
      out.sum[quad][half] = Isa::load_b64(sums[quad][half]);
  for (std::size_t group = 0; group < ordered_supers_max / group_supers; ++group)
    out.scale[group] = Isa::group_order(Isa::load(scale + group_supers * group));
}

// For block `block` of a quad: its share of the lines that lie stream_distance ahead of the quad. A
// few at a time: GCC would gather them, and as many in a row give less (kernels/README.md).
template <class Isa, class Format, std::size_t block>
[[gnu::always_inline]] inline void prefetch_share(const std::byte* quad) {
  constexpr std::size_t lines = (4 * Format::block_bytes + 63) / 64;
  for (std::size_t line = block * lines / 4; line < (block + 1) * lines / 4; ++line)
    Isa::prefetch(quad + stream_distance + 64 * line);
  asm volatile("" ::: "memory");  // stay here among the loads
}

// Sixteen parts of the scaled sum of a quad's block.
template <class Isa, class Format, int block>
[[gnu::always_inline]] inline typename Isa::I32x16 dot_ordered(const std::byte* at,
                                                               const SuperHeader<Isa>& header,
                                                               const SuperActivations<Isa>& x) {
  if constexpr (!Format::paired) {
    typename Isa::I32x16 dots[2];
    dot_super<Isa, Format>(unpack_super<Isa, Format, block>(at, header), x, dots);
    return dots[0];
  } else {
    typename Isa::B64 code[4];
    Format::template codes<Isa>(at, code);
    const auto scales = Isa::template spread_lanes<block>(header.scale[0], header.scale[0]);
    auto sum = Isa::zero_i();
    for (std::size_t lo = 0; lo < 4; lo += 2) {
      const std::size_t hi = lo + 1;
      const auto order = Isa::load_b64(scale_order<Format::layout, Format::sub_scales>.at[lo]);
      const auto scale = Isa::shuffle(scales, order);
      if constexpr (Format::template signed_codes<Isa>) {
        sum = Isa::multiply_add_signed(sum, code[lo], x.q[lo], x.magnitude[lo], scale);
        sum = Isa::multiply_add_signed(sum, code[hi], x.q[hi], x.magnitude[hi], scale);
      } else {
        sum = Isa::multiply_add_both(sum, code[lo], x.q[lo], code[hi], x.q[hi], scale);
      }
    }
    return sum;
  }
}

// What a quad of super-blocks gives: parts of its blocks' scaled sums, lane 4j + i of block i, or
// what the ISA makes of four vectors of parts.
template <class Isa>
struct QuadParts {
  using Type = typename Isa::I32x16;
  static Type zero() { return Isa::zero_i(); }
  // In group order.
  static typename Isa::I32x16 join(const Type (&parts)[4]) {
    return Isa::group_order_i(Isa::reduce_lanes(parts));
  }
};
template <class Isa>
requires has_four_sums<Isa>
struct QuadParts<Isa> {
  using Type = typename Isa::FourSums;
  static Type zero() { return Isa::four_zeros(); }
  static typename Isa::I32x16 join(const Type (&parts)[4]) { return Isa::join_sums(parts); }
};

template <class Isa>
struct QuadSums {
  typename QuadParts<Isa>::Type products[4];
  typename Isa::I32x16 minima[4];
  typename Isa::I32x16 words[4];
};

// Block `block` of a quad that is whole or has the first `count` blocks only.
template <class Isa, class Format, bool whole, int block>
[[gnu::always_inline]] inline void dot_block(const std::byte* const (&at)[4], std::size_t count,
                                             const SuperHeader<Isa>& header,
                                             const SuperActivations<Isa>* x,
                                             typename Isa::I32x16 (&dots)[4][2]) {
  dots[block][0] = dots[block][1] = Isa::zero_i();
  if (!whole && block >= count) return;
  if constexpr (whole) prefetch_share<Isa, Format, block>(at[0]);
  if constexpr (has_four_sums<Isa>)
    dots[block][0] = dot_ordered<Isa, Format, block>(at[block], header, x[block]);
  else
    dot_super<Isa, Format>(unpack_super<Isa, Format, block>(at[block], header), x[block],
                           dots[block]);
}

template <class Isa, class Format, bool whole>
[[gnu::always_inline]] inline typename QuadParts<Isa>::Type dot_blocks(
    const std::byte* const (&at)[4], std::size_t count, const SuperHeader<Isa>& header,
    const SuperActivations<Isa>* x) {
  typename Isa::I32x16 dots[4][2];
  dot_block<Isa, Format, whole, 0>(at, count, header, x, dots);
  dot_block<Isa, Format, whole, 1>(at, count, header, x, dots);
  dot_block<Isa, Format, whole, 2>(at, count, header, x, dots);
  dot_block<Isa, Format, whole, 3>(at, count, header, x, dots);
  if constexpr (has_four_sums<Isa>) {
    const typename Isa::I32x16 sums[4] = {dots[0][0], dots[1][0], dots[2][0], dots[3][0]};
    return Isa::four_sums(sums);
  } else {
    return join_dots<Isa, Format>(dots, header);
  }
}

// Quad `quad` of four: whole, or the first `count` blocks.
template <class Isa, class Format, bool whole>
[[gnu::always_inline]] inline void dot_quad(const std::byte* at, std::size_t count,
                                            const SuperActivations<Isa>* x,
                                            const typename Isa::B64 (&sum)[2], std::size_t quad,
                                            QuadSums<Isa>& out) {
  static constexpr std::byte none[Format::block_bytes] = {};
  const auto block = [&](std::size_t i) {
    return whole || i < count ? at + i * Format::block_bytes : none;
  };
  const std::byte* const blocks[4] = {at, block(1), block(2), block(3)};
  SuperHeader<Isa> header;
  Format::template header<Isa>(blocks, header);
  out.products[quad] = dot_blocks<Isa, Format, whole>(blocks, count, header, x);
  if constexpr (has_sums<Isa, Format>) out.minima[quad] = dot_minima<Isa, Format>(header, sum);
  out.words[quad] = header.words;
}

// The 16 blocks of a group. Returns where the work stands.
template <class Isa, class Format>
[[gnu::always_inline]] inline const std::byte* dot_whole_group(const std::byte* at,
                                                               const SuperActivations<Isa>* x,
                                                               const typename Isa::B64 (*sum)[2],
                                                               QuadSums<Isa>& out) {
  for (std::size_t quad = 0; quad < 4; ++quad, at += 4 * Format::block_bytes)
    dot_quad<Isa, Format, true>(at, 4, x + 4 * quad, sum[quad], quad, out);
  return at;
}

// The first `blocks` blocks of a group.
template <class Isa, class Format>
[[gnu::always_inline]] inline const std::byte* dot_part_of_group(
    const std::byte* at, std::size_t blocks, const SuperActivations<Isa>* x,
    const typename Isa::B64 (*sum)[2], PrefetchStream<Isa>& stream, QuadSums<Isa>& out) {
  for (std::size_t quad = 0; quad < 4; ++quad) {
    const std::size_t first = 4 * quad;
    if (first < blocks) {
      const std::size_t count = blocks - first < 4 ? blocks - first : 4;
      stream.work_up_to(at + count * Format::block_bytes);
      dot_quad<Isa, Format, false>(at, count, x + first, sum[quad], quad, out);
      at += count * Format::block_bytes;
    } else {
      out.products[quad] = QuadParts<Isa>::zero();
      out.minima[quad] = out.words[quad] = Isa::zero_i();
    }
  }
  return at;
}

// The canonical accumulators of `blocks` blocks, of one row or of short ones, in group order.
template <class Isa, class Format>
[[gnu::always_inline]] inline typename Isa::F32x16 dot_supers(const std::byte* at,
                                                              std::size_t blocks,
                                                              const OrderedSupers<Isa>& x,
                                                              PrefetchStream<Isa>& stream) {
  SuperSums<Isa> acc = {Isa::zero(), Isa::zero()};
  for (std::size_t b = 0; b < blocks; b += group_supers) {
    QuadSums<Isa> sums;
    if (blocks - b >= group_supers) {
      at = dot_whole_group<Isa, Format>(at, x.block + b, x.sum + b / 4, sums);
      stream.skip_to(at);
    } else {
      at = dot_part_of_group<Isa, Format>(at, blocks - b, x.block + b, x.sum + b / 4, stream, sums);
    }
    const auto minima = has_sums<Isa, Format> ? Isa::reduce_quads(sums.minima) : Isa::zero_i();
    step_super<Isa, Format>(QuadParts<Isa>::join(sums.products), minima,
                            Isa::template pick_words<Format::factor_word>(sums.words),
                            x.scale[b / group_supers], acc);
  }
  return total_super<Isa, Format>(acc);
}

// The last rows, where fewer are left than go together, and rows of other lengths.
template <class Isa, class Format>
[[gnu::always_inline]] inline void short_supers(const WeightRows& weights, std::size_t row,
                                                std::size_t together,
                                                const OrderedSupers<Isa>& ordered,
                                                PrefetchStream<Isa>& stream, float* y) {
  const std::size_t blocks = weights.columns / super_values;
  for (; row < weights.rows; row += together) {
    if (weights.rows - row < together) together = 1;
    alignas(64) float lanes[16];
    Isa::store(lanes,
               Isa::group_order(dot_supers<Isa, Format>(weights.data + row * weights.row_bytes,
                                                        together * blocks, ordered, stream)));
    for (std::size_t i = 0; i < together; ++i)
      y[row + i] = together == 1 ? Isa::tree_sum(Isa::load(lanes))
                                 : Isa::tree_sum(Isa::load_first(lanes + i * blocks, blocks));
  }
}

// Rows of which `together` are a group, or single longer ones. Returns how many were computed. Not
// inlined: tests/kernels/instruction_counts.py counts it.
template <class Isa, class Format, std::size_t together>
[[gnu::noinline]] std::size_t whole_supers(const WeightRows& weights,
                                           const OrderedSupers<Isa>& ordered,
                                           PrefetchStream<Isa>& stream, float* y) {
  const std::size_t blocks =
      together > 1 ? group_supers : weights.columns / super_values;  // the former without tails
  RowTotals<Isa, together> totals(y);
  std::size_t row = 0;
  for (; row + together <= weights.rows; row += together)
    totals.add(
        dot_supers<Isa, Format>(weights.data + row * weights.row_bytes, blocks, ordered, stream));
  totals.finish();
  return row;
}

template <class Isa, class Format>
[[gnu::noinline]] void matvec_super_in_order(const WeightRows& weights, const Q8SuperBatch& x,
                                             float* y) {
  const std::size_t blocks = weights.columns / super_values;
  const bool close = weights.row_bytes == blocks * Format::block_bytes;
  const std::size_t together = close && blocks < group_supers ? group_supers / blocks : 1;
  PrefetchStream<Isa> stream(weights.data);
  OrderedSupers<Isa> ordered;
  order_supers<Isa, Format>(x, blocks, together, ordered);
  std::size_t row = 0;
  if (together == 1) row = whole_supers<Isa, Format, 1>(weights, ordered, stream, y);
  else if (blocks == 8) row = whole_supers<Isa, Format, 2>(weights, ordered, stream, y);
  short_supers<Isa, Format>(weights, row, together, ordered, stream, y);
}

template <class Isa, class Format>
[[gnu::noinline]] void matvec_q8_super(const WeightRows& weights, const Q8SuperBatch& x, float* y) {
  if constexpr (rows_in_order<Isa>) {
    if (weights.columns <= ordered_supers_max * super_values)
      return matvec_super_in_order<Isa, Format>(weights, x, y);
  }
  for (std::size_t row = 0; row < weights.rows; row += super_rows)
    matvec_super<Isa, Format>(weights, row, x, 0, y);
}

// Any number of tokens.
template <class Isa, class Format>
void product_q8_super(const WeightRows& weights, const Q8SuperBatch& x, std::size_t tokens,
                      float* y, std::size_t y_stride) {
  if (tokens == 1) return matvec_q8_super<Isa, Format>(weights, x, y);
  if constexpr (unpacks_quickly<Format>) {
    if (tokens == 2)
      return two_tokens(weights, [&](const WeightRows& rows, std::size_t row, std::size_t token) {
        const Q8SuperBatch one = {x.q + token * x.q_stride, x.scale + token * x.block_stride,
                                  x.sum + token * (x.q_stride / 16), x.q_stride, x.block_stride};
        matvec_q8_super<Isa, Format>(rows, one, y + token * y_stride + row);
      });
  }
  matmul_q8_super<Isa, Format>(weights, x, tokens, y, y_stride);
}

}  // namespace
}  // namespace millrace
