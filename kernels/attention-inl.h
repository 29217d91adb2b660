// Attention of one token's query heads that share a KV head, over an ISA policy; arguments in
// kernel_table.h. The definition, for one head:
//
// Positions are cut at absolute multiples of 256. For a part, over its visible positions j:
//   s_j = fl(scale * dot(q, k_j))   canonical float dot; f16 and q8_0 elements are converted
//   exactly m   = max s_j p_j = exp(s_j - m) l   = sum of p_j                16 accumulators by j
//   mod 16 from +0, then the tree o_c = fma(p_j, v_j[c], o_c)     j ascending, from +0
// Parts merge in ascending order. The first one is taken as it is: M = m, L = l, O = o. Then
//   M'  = max(M, m)   a = exp(M - M')   b = exp(m - M')
//   L   = fma(L, a, fl(l * b))
//   O_c = fma(O_c, a, fl(o_c * b))
// Further rows (`more`) are cut at multiples of 256 of their own count and merge behind them, in
// the same way. A sink logit t joins last, without a value:
//   M'  = max(M, t)   a = exp(M - M')
//   L   = fma(L, a, exp(t - M'))
//   O_c = fl(O_c * a)
// and out_c = fl(O_c / L). A score that is NaN or +infinity (or a part with
// nothing but -infinity) makes all results of the head NaN.
//
// Nothing here depends on how many heads or positions go through a loop together: 16 heads (one
// vector of M and L) form a block, which passes over K and V once; in it tiles of heads x positions
// (scores) and heads x columns (values) fill the registers, so that each loaded element of K and V
// serves all heads of the tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/blocks.h"
#include "kernels/kernel_table.h"
#include "kernels/softmax-inl.h"

namespace millrace {
namespace {

// How rows of the cache are read: 16 elements from a column that is a multiple of 16.
template <class Isa>
struct HalfElements {
  static constexpr std::size_t row_bytes(std::size_t elements) { return 2 * elements; }
  static const std::uint16_t* at(const std::byte* row, std::size_t column) {
    return reinterpret_cast<const std::uint16_t*>(row) + column;
  }
  static typename Isa::F32x16 load(const std::byte* row, std::size_t column) {
    return Isa::load_f16(at(row, column));
  }
  static typename Isa::F32x16 load_first(const std::byte* row, std::size_t column,
                                         std::size_t lanes) {
    return Isa::load_f16_first(at(row, column), lanes);
  }
};

template <class Isa>
struct FloatElements {
  static constexpr std::size_t row_bytes(std::size_t elements) { return 4 * elements; }
  static const float* at(const std::byte* row, std::size_t column) {
    return reinterpret_cast<const float*>(row) + column;
  }
  static typename Isa::F32x16 load(const std::byte* row, std::size_t column) {
    return Isa::load(at(row, column));
  }
  static typename Isa::F32x16 load_first(const std::byte* row, std::size_t column,
                                         std::size_t lanes) {
    return Isa::load_first(at(row, column), lanes);
  }
};

// Blocks of 32 with a half scale; a product of scale and code is exact. Rows are whole blocks, with
// zeros behind the last element, so a tail is a full load.
template <class Isa>
struct Q8Elements {
  static constexpr std::size_t row_bytes(std::size_t elements) {
    return elements / 32 * sizeof(BlockQ8_0);
  }
  static typename Isa::F32x16 load(const std::byte* row, std::size_t column) {
    const std::byte* const block = row + row_bytes(column);
    std::uint16_t d;
    __builtin_memcpy(&d, block, sizeof d);
    const std::byte* const q = block + offsetof(BlockQ8_0, q) + column % 32;
    return Isa::mul(Isa::set1(Isa::half_to_float(d)), Isa::i8_to_f32(Isa::load_b16(q)));
  }
  static typename Isa::F32x16 load_first(const std::byte* row, std::size_t column, std::size_t) {
    return load(row, column);
  }
};

// Heads in as few tiles of at most `most` as will do, all of about the same size: a small tile has
// too few chains of fma to keep them busy. Calls tile.operator()<count>(first head).
template <std::size_t most, class Tile>
[[gnu::always_inline]] inline void for_even_tiles(std::size_t heads, Tile tile) {
  const auto call = [&]<std::size_t count>(const auto& self, std::size_t wanted, std::size_t head) {
    if (wanted == count) tile.template operator()<count>(head);
    else if constexpr (count > 1) self.template operator()<count - 1>(self, wanted, head);
  };
  std::size_t tiles = (heads + most - 1) / most;
  for (std::size_t head = 0; head < heads; --tiles) {
    const std::size_t count = (heads - head + tiles - 1) / tiles;
    call.template operator()<most>(call, count, head);
    head += count;
  }
}

// What a block of heads keeps from part to part.
struct AttentionSums {
  alignas(64) float maximum[attention_block_heads] = {};
  alignas(64) float sum[attention_block_heads] = {};
  alignas(64) float part_maximum[attention_block_heads] = {};
  alignas(64) float part_sum[attention_block_heads] = {};
  alignas(64) float old_factor[attention_block_heads] = {};   // a
  alignas(64) float part_factor[attention_block_heads] = {};  // b
};

// The visible positions of one part.
struct AttentionPart {
  const std::byte* k;  // rows of the first position
  const std::byte* v;
  std::size_t v_stride;
  std::size_t count;   // 1..256
  std::size_t offset;  // of the first position from the start of the part
  bool is_first;       // no earlier part to merge with
};

template <class Isa, class Elements>
class Attention {
  using Vector = typename Isa::F32x16;
  static constexpr std::size_t block_heads = attention_block_heads;
  static constexpr std::size_t part_positions = attention_part_positions;
  static constexpr std::size_t tile = Isa::attention_tile;             // accumulators
  static constexpr std::size_t tile_heads_max = Isa::attention_heads;  // of a tile

  using Part = AttentionPart;

  const AttentionArgs& args_;
  const std::size_t head_;   // first head of the block
  const std::size_t heads_;  // 1..16
  AttentionSums& sums_;

 public:
  static void run(const AttentionArgs& args) {
    for (std::size_t head = 0; head < args.heads; head += block_heads) {
      const std::size_t left = args.heads - head;
      AttentionSums sums;
      Attention(args, head, left < block_heads ? left : block_heads, sums).run_block();
    }
  }

  Attention(const AttentionArgs& args, std::size_t head, std::size_t heads, AttentionSums& sums)
      : args_(args), head_(head), heads_(heads), sums_(sums) {}

  void run_part(const Part& part) {
    scores_from<tile_heads_max>(part, 0);
    weigh(part);
    values_from<tile_heads_max>(part, 0);
  }
  // Scores become weights.
  void weigh(const Part& part) {
    for (std::size_t head = 0; head < heads_; ++head) normalize(part, head);
    merge_sums(part);
  }
  // The values of columns [column, column + 16 * strip_vectors), or as many as there are, whose
  // rows lie at part.v.
  void add_strip(const Part& part, std::size_t column) const {
    for_even_tiles<tile / strip_vectors>(
        heads_, [&]<std::size_t count>(std::size_t head) { strip_of<count>(part, head, column); });
  }
  static constexpr std::size_t strip_vectors = 2;

  // --- sink and division ---

  void finish() {
    if (args_.sinks != nullptr) join_sinks();
    for (std::size_t head = 0; head < heads_; ++head) {
      float* const to = out(head);
      const Vector sum = Isa::set1(sums_.sum[head]);
      const Vector factor = Isa::set1(sums_.old_factor[head]);
      const bool has_sink = args_.sinks != nullptr;
      for_vectors(args_.value_dim, [=](std::size_t i, std::size_t lanes) {
        Vector value = load_lanes<Isa>(to + i, lanes);
        if (has_sink) value = Isa::mul(value, factor);
        store_lanes<Isa>(to + i, Isa::div(value, sum), lanes);
      });
    }
  }

  static const std::byte* row_of(const void* rows, std::size_t index, std::size_t stride) {
    return static_cast<const std::byte*>(rows) + index * Elements::row_bytes(stride);
  }

 private:
  void run_block() {
    std::size_t begin = args_.first;
    while (begin <= args_.last) {
      const std::size_t offset = begin % part_positions;
      const std::size_t to_last = args_.last - begin + 1;
      const std::size_t to_end = part_positions - offset;
      const std::size_t at = begin - args_.origin;
      const Part part{row_of(args_.k, at, args_.k_stride),
                      row_of(args_.v, at, args_.v_stride),
                      args_.v_stride,
                      to_last < to_end ? to_last : to_end,
                      offset,
                      begin == args_.first};
      run_part(part);
      begin += part.count;
    }
    for (std::size_t at = 0; at < args_.more_count; at += part_positions) {
      const std::size_t left = args_.more_count - at;
      const std::byte* const rows = row_of(args_.more, at, args_.k_stride);
      run_part(
          {rows, rows, args_.k_stride, left < part_positions ? left : part_positions, 0, false});
    }
    finish();
  }

  // The 256 scores, then weights, of a head of the block; a position has the same place in all
  // parts.
  float* row(std::size_t head) const { return args_.scratch + head * part_positions; }
  float* out(std::size_t head) const { return args_.out + (head_ + head) * args_.value_dim; }

  // --- scores ---

  // Heads from `head` on, in tiles of `count` heads as long as these are full, the rest in smaller
  // ones.
  template <std::size_t count>
  void scores_from(const Part& part, std::size_t head) const {
    for (; head + count <= heads_; head += count) scores_of<count>(part, head);
    if constexpr (count > 1) scores_from<count / 2>(part, head);
  }

  template <std::size_t heads>
  void scores_of(const Part& part, std::size_t head) const {
    constexpr std::size_t positions = tile / heads;
    const float* const q = args_.q + (head_ + head) * args_.head_dim;
    const bool whole = args_.head_dim % 16 == 0;
    for (std::size_t j = 0; j < part.count; j += positions) {
      const std::size_t left = part.count - j;
      const std::byte* rows[positions];
      for (std::size_t p = 0; p < positions; ++p) {  // past the end the last row again
        rows[p] = row_of(part.k, j + (p < left ? p : left - 1), args_.k_stride);
      }
      alignas(64) float scores[tile];
      if (whole) score_tile<heads, positions, true>(q, rows, scores);
      else score_tile<heads, positions, false>(q, rows, scores);
      float* const to = row(head) + part.offset + j;
      const std::size_t count = positions < left ? positions : left;
      for (std::size_t h = 0; h < heads; ++h) {
        const float* const from = scores + h * positions;
        if (count == positions) __builtin_memcpy(to + h * part_positions, from, 4 * positions);
        else
          for (std::size_t p = 0; p < count; ++p) to[h * part_positions + p] = from[p];
      }
    }
  }

  // The unrolled loops keep the accumulators in registers. Whole: head_dim is a multiple of 16.
  template <std::size_t heads, std::size_t positions, bool whole>
  void score_tile(const float* q, const std::byte* const (&rows)[positions], float* scores) const {
    const std::size_t dim = args_.head_dim;
    Vector acc[tile];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < tile; ++i) acc[i] = Isa::zero();
    std::size_t c = 0;
    for (; c + 16 <= dim; c += 16) {
      Vector queries[heads];
#pragma GCC unroll 16
      for (std::size_t h = 0; h < heads; ++h) queries[h] = Isa::load(q + h * dim + c);
#pragma GCC unroll 16
      for (std::size_t p = 0; p < positions; ++p) {
        const Vector key = Elements::load(rows[p], c);
#pragma GCC unroll 16
        for (std::size_t h = 0; h < heads; ++h)
          acc[h * positions + p] = Isa::fma(key, queries[h], acc[h * positions + p]);
      }
    }
    if constexpr (!whole) {
      const std::size_t lanes = dim - c;
      for (std::size_t h = 0; h < heads; ++h) {
        const Vector query = Isa::load_first(q + h * dim + c, lanes);
        for (std::size_t p = 0; p < positions; ++p) {
          Vector& sum = acc[h * positions + p];
          sum = Isa::fma(Elements::load_first(rows[p], c, lanes), query, sum);
        }
      }
    }
    Isa::tree_sums(acc, scores);
    const Vector scale = Isa::set1(args_.scale);
    for (std::size_t i = 0; i < tile; i += 16)
      if constexpr (tile % 16 == 0) Isa::store(scores + i, Isa::mul(scale, Isa::load(scores + i)));
    if constexpr (tile % 16 != 0)
      for (std::size_t i = 0; i < tile; ++i) scores[i] = args_.scale * scores[i];
  }

  // --- softmax of a part, and merging ---

  // Scores become weights; positions around the visible ones, up to a multiple of 16, get weight 0.
  void normalize(const Part& part, std::size_t head) {
    float* const scores = row(head);
    const std::size_t begin = part.offset / 16 * 16;
    const std::size_t visible_end = part.offset + part.count;
    const std::size_t end = (visible_end + 15) / 16 * 16;
    for (std::size_t j = begin; j < part.offset; ++j) scores[j] = minus_infinity;
    for (std::size_t j = visible_end; j < end; ++j) scores[j] = minus_infinity;
    sums_.part_maximum[head] = maximum<Isa>(scores + begin, end - begin);
    sums_.part_sum[head] = exp_and_sum<Isa>(scores + begin, sums_.part_maximum[head], end - begin);
  }

  void merge_sums(const Part& part) {
    const Vector part_max = Isa::load(sums_.part_maximum);
    const Vector part_sum = Isa::load(sums_.part_sum);
    if (part.is_first) {
      Isa::store(sums_.maximum, part_max);
      Isa::store(sums_.sum, part_sum);
      return;
    }
    const Vector old_max = Isa::load(sums_.maximum);
    const Vector new_max = Isa::max(old_max, part_max);
    const Vector old_factor = exp_lanes<Isa>(Isa::sub(old_max, new_max));
    const Vector part_factor = exp_lanes<Isa>(Isa::sub(part_max, new_max));
    Isa::store(sums_.maximum, new_max);
    Isa::store(sums_.sum,
               Isa::fma(Isa::load(sums_.sum), old_factor, Isa::mul(part_sum, part_factor)));
    Isa::store(sums_.old_factor, old_factor);
    Isa::store(sums_.part_factor, part_factor);
  }

  // --- values ---

  template <std::size_t count>
  void values_from(const Part& part, std::size_t head) const {
    for (; head + count <= heads_; head += count) {
      columns_from<count, tile / count>(part, head, 0);
    }
    if constexpr (count > 1) values_from<count / 2>(part, head);
  }

  template <std::size_t count>
  void strip_of(const Part& part, std::size_t head, std::size_t column) const {
    const std::size_t left = args_.value_dim - column;
    if (left >= 16 * strip_vectors)
      return value_tile<count, strip_vectors, true>(part, head, column, 16, 0);
    if (left >= 16) value_tile<count, 1, true>(part, head, column, 16, 0);
    if (const std::size_t lanes = left % 16; lanes > 0)
      value_tile<count, 1, false>(part, head, column + left - lanes, lanes, left - lanes);
  }

  // Columns from `column` on, `vectors` vectors at a time, the rest in smaller tiles.
  template <std::size_t heads, std::size_t vectors>
  void columns_from(const Part& part, std::size_t head, std::size_t column) const {
    for (; column + 16 * vectors <= args_.value_dim; column += 16 * vectors) {
      value_tile<heads, vectors, true>(part, head, column, 16, column);
    }
    if constexpr (vectors > 1) {
      columns_from<heads, vectors / 2>(part, head, column);
    } else if (column < args_.value_dim) {
      value_tile<heads, 1, false>(part, head, column, args_.value_dim - column, column);
    }
  }

  // A tile of output columns over all positions of the part, whose rows have them from `from` on.
  // Not full: one vector of `lanes`.
  template <std::size_t heads, std::size_t vectors, bool full>
  void value_tile(const Part& part, std::size_t head, std::size_t column, std::size_t lanes,
                  std::size_t from) const {
    const float* const weights = row(head) + part.offset;
    const std::byte* values = part.v;
    const std::size_t step = Elements::row_bytes(part.v_stride);
    Vector acc[heads * vectors];
#pragma GCC unroll 16
    for (std::size_t i = 0; i < heads * vectors; ++i) acc[i] = Isa::zero();
    for (std::size_t j = 0; j < part.count; ++j, values += step) {
      Vector value[vectors];
      for (std::size_t c = 0; c < vectors; ++c) {
        value[c] = full ? Elements::load(values, from + 16 * c)
                        : Elements::load_first(values, from, lanes);
      }
      for (std::size_t h = 0; h < heads; ++h) {
        const Vector weight = Isa::set1(weights[h * part_positions + j]);
        for (std::size_t c = 0; c < vectors; ++c) {
          Vector& sum = acc[h * vectors + c];
          sum = Isa::fma(weight, value[c], sum);
        }
      }
    }
    for (std::size_t h = 0; h < heads; ++h) {
      for (std::size_t c = 0; c < vectors; ++c) {
        merge_value(part, head + h, column + 16 * c, lanes, acc[h * vectors + c]);
      }
    }
  }

  void merge_value(const Part& part, std::size_t head, std::size_t column, std::size_t lanes,
                   Vector value) const {
    float* const to = out(head) + column;
    if (!part.is_first) {
      value = Isa::fma(load_lanes<Isa>(to, lanes), Isa::set1(sums_.old_factor[head]),
                       Isa::mul(value, Isa::set1(sums_.part_factor[head])));
    }
    store_lanes<Isa>(to, value, lanes);
  }

  void join_sinks() {
    const Vector sink = Isa::load_first(args_.sinks + head_, heads_);
    const Vector old_max = Isa::load(sums_.maximum);
    const Vector new_max = Isa::max(old_max, sink);
    const Vector old_factor = exp_lanes<Isa>(Isa::sub(old_max, new_max));
    const Vector sink_weight = exp_lanes<Isa>(Isa::sub(sink, new_max));
    Isa::store(sums_.old_factor, old_factor);
    Isa::store(sums_.sum, Isa::fma(Isa::load(sums_.sum), old_factor, sink_weight));
  }
};

template <class Isa>
void attention_f16(const AttentionArgs& args) {
  Attention<Isa, HalfElements<Isa>>::run(args);
}

template <class Isa>
void attention_f32(const AttentionArgs& args) {
  Attention<Isa, FloatElements<Isa>>::run(args);
}

template <class Isa>
void attention_q8_0(const AttentionArgs& args) {
  Attention<Isa, Q8Elements<Isa>>::run(args);
}

}  // namespace
}  // namespace millrace
