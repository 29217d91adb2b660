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

template <class Isa, class Elements>
class Attention {
  using Vector = typename Isa::F32x16;
  static constexpr std::size_t block_heads = attention_block_heads;
  static constexpr std::size_t part_positions = attention_part_positions;
  static constexpr std::size_t tile = Isa::attention_tile;             // accumulators
  static constexpr std::size_t tile_heads_max = Isa::attention_heads;  // of a tile

  // The visible positions of one part.
  struct Part {
    const std::byte* k;  // rows of the first position
    const std::byte* v;
    std::size_t v_stride;
    std::size_t count;   // 1..256
    std::size_t offset;  // of the first position from the start of the part
    bool is_first;       // no earlier part to merge with
  };

  const AttentionArgs& args_;
  const std::size_t head_;   // first head of the block
  const std::size_t heads_;  // 1..16
  alignas(64) float maximum_[block_heads] = {};
  alignas(64) float sum_[block_heads] = {};
  alignas(64) float part_maximum_[block_heads] = {};
  alignas(64) float part_sum_[block_heads] = {};
  alignas(64) float old_factor_[block_heads] = {};   // a
  alignas(64) float part_factor_[block_heads] = {};  // b

 public:
  static void run(const AttentionArgs& args) {
    for (std::size_t head = 0; head < args.heads; head += block_heads) {
      const std::size_t left = args.heads - head;
      Attention(args, head, left < block_heads ? left : block_heads).run_block();
    }
  }

 private:
  Attention(const AttentionArgs& args, std::size_t head, std::size_t heads)
      : args_(args), head_(head), heads_(heads) {}

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

  void run_part(const Part& part) {
    scores_from<tile_heads_max>(part, 0);
    for (std::size_t head = 0; head < heads_; ++head) normalize(part, head);
    merge_sums(part);
    values_from<tile_heads_max>(part, 0);
  }

  static const std::byte* row_of(const void* rows, std::size_t index, std::size_t stride) {
    return static_cast<const std::byte*>(rows) + index * Elements::row_bytes(stride);
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
    for (std::size_t j = 0; j < part.count; j += positions) {
      const std::size_t left = part.count - j;
      const std::byte* rows[positions];
      for (std::size_t p = 0; p < positions; ++p) {  // past the end the last row again
        rows[p] = row_of(part.k, j + (p < left ? p : left - 1), args_.k_stride);
      }
      alignas(64) float scores[tile];
      score_tile<heads, positions>(args_.q + (head_ + head) * args_.head_dim, rows, scores);
      for (std::size_t h = 0; h < heads; ++h) {
        float* const to = row(head + h) + part.offset + j;
        for (std::size_t p = 0; p < positions && p < left; ++p) to[p] = scores[h * positions + p];
      }
    }
  }

  template <std::size_t heads, std::size_t positions>
  void score_tile(const float* q, const std::byte* const (&rows)[positions], float* scores) const {
    const std::size_t dim = args_.head_dim;
    Vector acc[tile];
    for (std::size_t i = 0; i < tile; ++i) acc[i] = Isa::zero();
    std::size_t c = 0;
    for (; c + 16 <= dim; c += 16) {
      Vector queries[heads];
      for (std::size_t h = 0; h < heads; ++h) queries[h] = Isa::load(q + h * dim + c);
      for (std::size_t p = 0; p < positions; ++p) {
        const Vector key = Elements::load(rows[p], c);
        for (std::size_t h = 0; h < heads; ++h) {
          Vector& sum = acc[h * positions + p];
          sum = Isa::fma(key, queries[h], sum);
        }
      }
    }
    if (const std::size_t lanes = dim - c; lanes > 0) {
      for (std::size_t h = 0; h < heads; ++h) {
        const Vector query = Isa::load_first(q + h * dim + c, lanes);
        for (std::size_t p = 0; p < positions; ++p) {
          Vector& sum = acc[h * positions + p];
          sum = Isa::fma(Elements::load_first(rows[p], c, lanes), query, sum);
        }
      }
    }
    Isa::tree_sums(acc, scores);
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
    part_maximum_[head] = maximum<Isa>(scores + begin, end - begin);
    part_sum_[head] = exp_and_sum<Isa>(scores + begin, part_maximum_[head], end - begin);
  }

  void merge_sums(const Part& part) {
    const Vector part_max = Isa::load(part_maximum_);
    const Vector part_sum = Isa::load(part_sum_);
    if (part.is_first) {
      Isa::store(maximum_, part_max);
      Isa::store(sum_, part_sum);
      return;
    }
    const Vector old_max = Isa::load(maximum_);
    const Vector new_max = Isa::max(old_max, part_max);
    const Vector old_factor = exp_lanes<Isa>(Isa::sub(old_max, new_max));
    const Vector part_factor = exp_lanes<Isa>(Isa::sub(part_max, new_max));
    Isa::store(maximum_, new_max);
    Isa::store(sum_, Isa::fma(Isa::load(sum_), old_factor, Isa::mul(part_sum, part_factor)));
    Isa::store(old_factor_, old_factor);
    Isa::store(part_factor_, part_factor);
  }

  // --- values ---

  template <std::size_t count>
  void values_from(const Part& part, std::size_t head) const {
    for (; head + count <= heads_; head += count) {
      columns_from<count, tile / count>(part, head, 0);
    }
    if constexpr (count > 1) values_from<count / 2>(part, head);
  }

  // Columns from `column` on, `vectors` vectors at a time, the rest in smaller tiles.
  template <std::size_t heads, std::size_t vectors>
  void columns_from(const Part& part, std::size_t head, std::size_t column) const {
    for (; column + 16 * vectors <= args_.value_dim; column += 16 * vectors) {
      value_tile<heads, vectors, true>(part, head, column, 16);
    }
    if constexpr (vectors > 1) {
      columns_from<heads, vectors / 2>(part, head, column);
    } else if (column < args_.value_dim) {
      value_tile<heads, 1, false>(part, head, column, args_.value_dim - column);
    }
  }

  // A tile of output columns over all positions of the part. Not full: one vector of `lanes`.
  template <std::size_t heads, std::size_t vectors, bool full>
  void value_tile(const Part& part, std::size_t head, std::size_t column, std::size_t lanes) const {
    const float* const weights = row(head) + part.offset;
    const std::byte* values = part.v;
    const std::size_t step = Elements::row_bytes(part.v_stride);
    Vector acc[heads * vectors];
    for (std::size_t i = 0; i < heads * vectors; ++i) acc[i] = Isa::zero();
    for (std::size_t j = 0; j < part.count; ++j, values += step) {
      Vector value[vectors];
      for (std::size_t c = 0; c < vectors; ++c) {
        value[c] = full ? Elements::load(values, column + 16 * c)
                        : Elements::load_first(values, column, lanes);
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
      value = Isa::fma(load_lanes<Isa>(to, lanes), Isa::set1(old_factor_[head]),
                       Isa::mul(value, Isa::set1(part_factor_[head])));
    }
    store_lanes<Isa>(to, value, lanes);
  }

  // --- sink and division ---

  void finish() {
    if (args_.sinks != nullptr) join_sinks();
    for (std::size_t head = 0; head < heads_; ++head) {
      float* const to = out(head);
      const Vector sum = Isa::set1(sum_[head]);
      const Vector factor = Isa::set1(old_factor_[head]);
      const bool has_sink = args_.sinks != nullptr;
      for_vectors(args_.value_dim, [=](std::size_t i, std::size_t lanes) {
        Vector value = load_lanes<Isa>(to + i, lanes);
        if (has_sink) value = Isa::mul(value, factor);
        store_lanes<Isa>(to + i, Isa::div(value, sum), lanes);
      });
    }
  }

  void join_sinks() {
    const Vector sink = Isa::load_first(args_.sinks + head_, heads_);
    const Vector old_max = Isa::load(maximum_);
    const Vector new_max = Isa::max(old_max, sink);
    const Vector old_factor = exp_lanes<Isa>(Isa::sub(old_max, new_max));
    const Vector sink_weight = exp_lanes<Isa>(Isa::sub(sink, new_max));
    Isa::store(old_factor_, old_factor);
    Isa::store(sum_, Isa::fma(Isa::load(sum_), old_factor, sink_weight));
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
