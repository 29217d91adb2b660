// Attention of some neighbouring tokens of a sequence, over an ISA policy: the arithmetic of
// attention-inl.h. Of each part the rows that any token sees are converted to floats once, and K is
// turned: lane = position, so that a score is a lane and its 16 canonical sums, one for each class
// of columns i mod 16, join as they come. Then scores, weights and values of all tokens follow, a
// few rows of K, then a strip of columns of V at a time, small enough to stay in the first-level
// cache for all tokens.
#pragma once

#include "kernels/attention-inl.h"
#include "kernels/panel-inl.h"

namespace millrace {
namespace {

// Keys of 16 positions: columns x 16 floats.
inline constexpr std::size_t turned_positions = 16;

// Scores of `heads` heads of `head_dim` (a multiple of 16) values each for `blocks` blocks of keys,
// which lie one behind the other. Position 0 of head h to out[256 h].
template <class Isa, std::size_t heads, std::size_t blocks>
void score_turned(const float* q, std::size_t head_dim, const float* keys, float scale,
                  float* out) {
  using Vector = typename Isa::F32x16;
  constexpr std::size_t half = 8;
  struct Tile {
    Vector of[heads * blocks];
  };
  Tile levels[3];
  Tile sums;
  // Classes c and c + 8 together, c in bit-reversed order.
  for (std::size_t turn = 0; turn < half; ++turn) {
    const std::size_t first = class_order[2 * turn];
    Tile second;
#pragma GCC unroll 16
    for (std::size_t i = 0; i < heads * blocks; ++i) sums.of[i] = second.of[i] = Isa::zero();
    for (std::size_t column = first; column < head_dim; column += 16) {
      const float* const key = keys + column * turned_positions;
      const auto step = [&](std::size_t from, Tile & to) __attribute__((always_inline)) {
        Vector k[blocks];
#pragma GCC unroll 4
        for (std::size_t b = 0; b < blocks; ++b)
          k[b] = Isa::load(key + (b * head_dim + from) * turned_positions);
#pragma GCC unroll 8
        for (std::size_t h = 0; h < heads; ++h) {
          const Vector query = Isa::set1(q[h * head_dim + column + from]);
#pragma GCC unroll 4
          for (std::size_t b = 0; b < blocks; ++b)
            to.of[h * blocks + b] = Isa::fma(k[b], query, to.of[h * blocks + b]);
        }
      };
      step(0, sums);
      step(half, second);
    }
#pragma GCC unroll 16
    for (std::size_t i = 0; i < heads * blocks; ++i)
      sums.of[i] = Isa::add(sums.of[i], second.of[i]);
    std::size_t level = 0;
    for (; (turn >> level & 1) != 0; ++level)
#pragma GCC unroll 16
      for (std::size_t i = 0; i < heads * blocks; ++i)
        sums.of[i] = Isa::add(levels[level].of[i], sums.of[i]);
    if (turn + 1 < half) levels[level] = sums;
  }
  for (std::size_t h = 0; h < heads; ++h)
    for (std::size_t b = 0; b < blocks; ++b)
      Isa::store(out + h * attention_part_positions + b * turned_positions,
                 Isa::mul(Isa::set1(scale), sums.of[h * blocks + b]));
}

template <class Isa, class Elements>
class AttentionTokens {
  using One = Attention<Isa, FloatElements<Isa>>;
  static constexpr std::size_t score_blocks = 2;
  static constexpr std::size_t score_heads = Isa::turned_heads;
  static constexpr std::size_t strip_columns = 16 * One::strip_vectors;

  const AttentionArgs& args_;
  const AttentionRun& run_;
  float* const keys_;    // 16 blocks of turned rows
  float* const values_;  // strips of 256 rows of strip_columns
  AttentionArgs token_args_[attention_tokens_max];
  AttentionSums sums_[attention_tokens_max];
  AttentionPart parts_[attention_tokens_max];  // what a token sees of the part; count 0: nothing

 public:
  static void run(const AttentionArgs& args, const AttentionRun& run) {
    for (std::size_t head = 0; head < args.heads; head += attention_block_heads) {
      AttentionArgs block = args;
      const std::size_t left = args.heads - head;
      block.heads = left < attention_block_heads ? left : attention_block_heads;
      block.q += head * args.head_dim;
      block.out += head * args.value_dim;
      if (args.sinks != nullptr) block.sinks += head;
      AttentionTokens(block, run).run_block();
    }
  }

 private:
  AttentionTokens(const AttentionArgs& args, const AttentionRun& run)
      : args_(args),
        run_(run),
        keys_(args.scratch + run.tokens * attention_scratch_floats()),
        values_(keys_ + attention_part_positions * args.head_dim) {
    for (std::size_t t = 0; t < run.tokens; ++t) {
      AttentionArgs& own = token_args_[t] = args;
      own.q += t * run.q_stride;
      own.out += t * run.out_stride;
      own.scratch += t * attention_scratch_floats();
      own.last += t;
      if (run.own != nullptr) {
        own.k = run.own[t].k;
        own.v = run.own[t].v;
        own.last = run.own[t].last;
      }
      if (run.window > 0 && own.last + 1 > own.first + run.window)
        own.first = own.last + 1 - run.window;
    }
  }

  void run_block() {
    const bool apart = run_.own != nullptr;
    const std::size_t end = apart ? run_.shared : token_args_[run_.tokens - 1].last + 1;
    std::size_t begin = args_.first;
    while (begin < end) {
      const std::size_t part_end =
          (begin / attention_part_positions + 1) * attention_part_positions;
      const std::size_t to = part_end < end ? part_end : end;
      run_part(begin, to);
      begin = to;
    }
    for (std::size_t t = 0; t < run_.tokens; ++t) {
      if (apart) run_own_parts(t, end);
      one(t).finish();
    }
  }

  // The parts of a token's own sequence, from position `begin` on.
  void run_own_parts(std::size_t t, std::size_t begin) {
    using Own = Attention<Isa, Elements>;
    const AttentionArgs& args = token_args_[t];
    Own own(args, 0, args.heads, sums_[t]);
    while (begin <= args.last) {
      const std::size_t left = args.last - begin + 1;
      const std::size_t count = left < attention_part_positions ? left : attention_part_positions;
      own.run_part({Own::row_of(args.k, begin, args.k_stride),
                    Own::row_of(args.v, begin, args.v_stride), args.v_stride, count, 0,
                    begin == args.first});
      begin += count;
    }
  }

  One one(std::size_t t) { return One(token_args_[t], 0, args_.heads, sums_[t]); }

  // Positions [begin, end).
  void run_part(std::size_t begin, std::size_t end) {
    convert(begin, end - begin);
    for (std::size_t t = 0; t < run_.tokens; ++t) parts_[t] = part_of(token_args_[t], begin, end);
    constexpr std::size_t positions = score_blocks * turned_positions;
    const std::size_t first = begin % attention_part_positions / positions * positions;
    const std::size_t stop = (end - 1) % attention_part_positions + 1;
    for (std::size_t at = first; at < stop; at += positions)
      for (std::size_t t = 0; t < run_.tokens; ++t) score(t, at, at + positions);
    for (std::size_t t = 0; t < run_.tokens; ++t)
      if (parts_[t].count > 0) one(t).weigh(parts_[t]);
    for (std::size_t column = 0; column < args_.value_dim; column += strip_columns) {
      const float* const strip = values_ + attention_part_positions * column;
      for (std::size_t t = 0; t < run_.tokens; ++t) {
        AttentionPart part = parts_[t];
        if (part.count == 0) continue;
        const std::size_t skipped = part.offset - begin % attention_part_positions;
        part.v = reinterpret_cast<const std::byte*>(strip + skipped * strip_columns);
        one(t).add_strip(part, column);
      }
    }
  }

  AttentionPart part_of(const AttentionArgs& own, std::size_t begin, std::size_t end) const {
    const std::size_t from = own.first > begin ? own.first : begin;
    const std::size_t to = own.last + 1 < end ? own.last + 1 : end;
    return {nullptr,
            nullptr,
            strip_columns,
            from < to ? to - from : 0,
            from % attention_part_positions,
            from == own.first};
  }

  // Token t's scores of positions [at, stop) of the part, if it sees any.
  void score(std::size_t t, std::size_t at, std::size_t stop) const {
    const AttentionPart& part = parts_[t];
    if (part.count == 0 || part.offset + part.count <= at || part.offset >= stop) return;
    const AttentionArgs& own = token_args_[t];
    for_even_tiles<score_heads>(own.heads, [&]<std::size_t count>(std::size_t head) {
      score_turned<Isa, count, score_blocks>(own.q + head * own.head_dim, own.head_dim,
                                             keys_ + at * own.head_dim, own.scale,
                                             own.scratch + head * attention_part_positions + at);
    });
  }

  // Positions [begin, begin + count), of one part.
  void convert(std::size_t begin, std::size_t count) {
    constexpr std::size_t positions = score_blocks * turned_positions;
    const std::size_t offset = begin % attention_part_positions;
    for (std::size_t at = offset / positions * positions; at < offset + count; at += positions)
      for (std::size_t b = 0; b < score_blocks; ++b)
        turn_keys(begin, count, at + b * turned_positions);
    const std::byte* v =
        Attention<Isa, Elements>::row_of(args_.v, begin - args_.origin, args_.v_stride);
    for (std::size_t j = 0; j < count; ++j, v += Elements::row_bytes(args_.v_stride)) {
      float* to = values_ + j * strip_columns;
      for (std::size_t i = 0; i < args_.value_dim; i += strip_columns) {
        Isa::store(to, load(v, i, args_.value_dim - i));
        if (i + 16 < args_.value_dim)
          Isa::store(to + 16, load(v, i + 16, args_.value_dim - i - 16));
        to += attention_part_positions * strip_columns;
      }
    }
  }
  // The block of positions from `at` of the part on; for those before and behind the given ones
  // others stand in.
  void turn_keys(std::size_t begin, std::size_t count, std::size_t at) {
    const std::size_t offset = begin % attention_part_positions;
    const std::byte* rows[turned_positions];
    for (std::size_t p = 0; p < turned_positions; ++p) {
      const std::size_t wanted = at + p < offset ? 0 : at + p - offset;
      rows[p] = Attention<Isa, Elements>::row_of(
          args_.k, begin - args_.origin + (wanted < count ? wanted : count - 1), args_.k_stride);
    }
    for (std::size_t column = 0; column < args_.head_dim; column += 16) {
      typename Isa::B64 in[16], out[16];
      for (std::size_t p = 0; p < 16; ++p)
        in[p] = Isa::bytes(Isa::bits(Elements::load(rows[p], column)));
      transpose_rows<Isa>(in, out);
      for (std::size_t i = 0; i < 16; ++i)
        Isa::store_b64(keys_ + (at * args_.head_dim + (column + i) * turned_positions), out[i]);
    }
  }
  static typename Isa::F32x16 load(const std::byte* row, std::size_t column, std::size_t lanes) {
    return lanes >= 16 ? Elements::load(row, column) : Elements::load_first(row, column, lanes);
  }
};

template <class Isa>
void attention_tokens_f16(const AttentionArgs& args, const AttentionRun& run) {
  AttentionTokens<Isa, HalfElements<Isa>>::run(args, run);
}
template <class Isa>
void attention_tokens_f32(const AttentionArgs& args, const AttentionRun& run) {
  AttentionTokens<Isa, FloatElements<Isa>>::run(args, run);
}
template <class Isa>
void attention_tokens_q8_0(const AttentionArgs& args, const AttentionRun& run) {
  AttentionTokens<Isa, Q8Elements<Isa>>::run(args, run);
}

}  // namespace
}  // namespace millrace
