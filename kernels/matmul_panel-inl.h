// Products of quantized weights and many tokens by panels (panel-inl.h), over an ISA policy. A tile
// is some panels by some tokens: for each block, the panels' codes meet four bytes of a token's
// activations in all lanes at once, so that a sum of 16 rows is one vector and nothing has to be
// reduced across lanes. A tile takes the canonical classes one after the other; the 16 finished
// sums of a result join in the canonical tree as they come.
#pragma once

#include "kernels/panel_tokens-inl.h"

namespace millrace {
namespace {

// Weights that will be wanted next, prefetched a little at a time while a tile runs.
class WeightsAhead {
 public:
  // `steps` steps are to cover the bytes.
  WeightsAhead(const std::byte* begin, std::size_t bytes, std::size_t steps)
      : at_(begin), end_(begin + bytes), step_((bytes / steps + 64) / 64 * 64) {}
  template <class Isa>
  [[gnu::always_inline]] void prefetch() {
    if (at_ >= end_) return;
    for (std::size_t line = 0; line < step_; line += 64) Isa::prefetch(at_ + line);
    at_ += step_;
  }

 private:
  const std::byte* at_;
  const std::byte* end_;
  std::size_t step_;
};

// The dots of one part of a record: sum[p][t] += panel p's rows times token t, whose bytes lie at
// `part`.
template <class Isa, class Shape, std::size_t panels, std::size_t tokens>
[[gnu::always_inline]] inline void dot_part(const std::byte* codes, const std::byte* part,
                                            typename Isa::I32x16 (&sum)[panels][tokens]) {
  const auto load = [&](typename Isa::B64(&w)[panels], std::size_t k) {
    for (std::size_t p = 0; p < panels; ++p)
      w[p] = Isa::load_b64(codes + p * Shape::bytes + 64 * k);
  };
  const auto spread = [&](std::size_t k, std::size_t t) {
    return Isa::spread4(reinterpret_cast<const std::int8_t*>(part + 4 * (k * tokens + t)));
  };
  if constexpr (Shape::largest == 0) {
#pragma GCC unroll 8
    for (std::size_t k = 0; k < Shape::steps; ++k) {
      typename Isa::B64 w[panels];
      load(w, k);
      for (std::size_t t = 0; t < tokens; ++t) {
        const auto a = spread(k, t);
        for (std::size_t p = 0; p < panels; ++p) sum[p][t] = Isa::dot4_i(sum[p][t], w[p], a);
      }
    }
  } else {
    constexpr std::size_t most = Isa::products_steps(Shape::largest);
    constexpr std::size_t run = most < Shape::steps ? most : Shape::steps;
#pragma GCC unroll 8
    for (std::size_t from = 0; from < Shape::steps; from += run) {
      typename Isa::Products products[panels][tokens];
      for (std::size_t p = 0; p < panels; ++p)
        for (std::size_t t = 0; t < tokens; ++t) products[p][t] = Isa::begin_products(sum[p][t]);
#pragma GCC unroll 8
      for (std::size_t k = from; k < from + run; ++k) {
        typename Isa::B64 w[panels];
        load(w, k);
        for (std::size_t t = 0; t < tokens; ++t) {
          const auto a = spread(k, t);
          for (std::size_t p = 0; p < panels; ++p)
            products[p][t] = Isa::add_products(products[p][t], w[p], a);
        }
      }
      for (std::size_t p = 0; p < panels; ++p)
        for (std::size_t t = 0; t < tokens; ++t)
          sum[p][t] = Isa::end_products(sum[p][t], products[p][t]);
    }
  }
}

// What the sums of a part start with.
template <class Isa, class Shape, std::size_t panels, std::size_t tokens>
[[gnu::always_inline]] inline void start_part(const std::byte* record, std::size_t part,
                                              typename Isa::I32x16 (&sum)[panels][tokens]) {
  const std::byte* const start = record + TokenShape<Shape>::start(part, tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    std::int32_t value;
    std::memcpy(&value, start + 4 * t, 4);
    for (std::size_t p = 0; p < panels; ++p) sum[p][t] = Isa::set1_i(value);
  }
}

[[gnu::always_inline]] inline float float_at(const std::byte* p) {
  float value;
  std::memcpy(&value, p, 4);
  return value;
}

template <class Isa, std::size_t panels, std::size_t tokens>
struct TileSums {
  typename Isa::F32x16 of[panels][tokens];
};
template <class Isa, std::size_t panels, std::size_t tokens>
[[gnu::always_inline]] inline void clear(TileSums<Isa, panels, tokens>& sums) {
  for (auto& panel : sums.of)
    for (auto& one : panel) one = Isa::zero();
}

// One block of 32 values: acc = fma(S, dw * da, acc).
template <class Isa, class Shape, std::size_t panels, std::size_t tokens>
[[gnu::always_inline]] inline void step_block(const std::byte* record, const std::byte* x,
                                              TileSums<Isa, panels, tokens>& acc,
                                              TileSums<Isa, panels, tokens>& minima) {
  using Tokens = TokenShape<Shape>;
  typename Isa::I32x16 sum[panels][tokens];
  start_part<Isa, Shape, panels, tokens>(x, 0, sum);
  dot_part<Isa, Shape, panels, tokens>(record, x, sum);
  for (std::size_t p = 0; p < panels; ++p) {
    const std::byte* const own = record + p * Shape::bytes;
    const auto scale = Isa::load(reinterpret_cast<const float*>(own + Shape::scale));
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto da = Isa::set1(float_at(x + Tokens::scale(tokens) + 4 * t));
      acc.of[p][t] = Isa::fma(Isa::to_f32(sum[p][t]), Isa::mul(scale, da), acc.of[p][t]);
      if constexpr (Shape::minima) {
        const auto minimum = Isa::load(reinterpret_cast<const float*>(own + Shape::minimum));
        const auto q_sum = Isa::set1(float_at(x + Tokens::sums(tokens) + 4 * t));
        minima.of[p][t] = Isa::fma(q_sum, Isa::mul(minimum, da), minima.of[p][t]);
      }
    }
  }
}

// Joins the sums of the class that ends turn `turn` with what is finished. After the last of
// 2^n turns levels[n] holds the results.
template <class Isa, std::size_t panels, std::size_t tokens>
[[gnu::always_inline]] inline void join_class(TileSums<Isa, panels, tokens> sums, std::size_t turn,
                                              TileSums<Isa, panels, tokens> (&levels)[5]) {
  std::size_t level = 0;
  for (; (turn >> level & 1) != 0; ++level)
    for (std::size_t p = 0; p < panels; ++p)
      for (std::size_t t = 0; t < tokens; ++t)
        sums.of[p][t] = Isa::add(levels[level].of[p][t], sums.of[p][t]);
  levels[level] = sums;
}

// Stores the results of `classes` classes.
template <class Isa, std::size_t panels, std::size_t tokens>
[[gnu::always_inline]] inline void store_results(const TileSums<Isa, panels, tokens> (&levels)[5],
                                                 std::size_t classes, float* y,
                                                 std::size_t y_stride) {
  std::size_t level = 0;
  while (classes >> level > 1) ++level;
  for (std::size_t p = 0; p < panels; ++p) {
    for (std::size_t t = 0; t < tokens; ++t) {
      auto sum = levels[level].of[p][t];
      if (classes < 16) sum = Isa::add(sum, Isa::zero());
      Isa::store(y + t * y_stride + panel_rows * p, sum);
    }
  }
}

// Blocks in a class.
constexpr std::size_t class_blocks(std::size_t index, std::size_t blocks) {
  return index < blocks ? (blocks + 15 - index) / 16 : 0;
}

// The products of a tile, class by class. `Step` says what one block (of 32 values, or a
// super-block) adds to the sums, and how minima join them at a class's end.
template <class Step>
struct ClassTile {
  template <class Isa>
  static constexpr std::size_t panels = Isa::panels;
  static constexpr std::size_t steps(std::size_t blocks) { return blocks; }  // of the prefetch

  template <class Isa, class Shape, std::size_t tokens>
  static void run(const std::byte* record, const std::byte* x, std::size_t blocks,
                  WeightsAhead& ahead, float* y, std::size_t y_stride) {
    constexpr std::size_t panels = Isa::panels;
    TileSums<Isa, panels, tokens> levels[5];
    const std::size_t classes = class_count(blocks);
    for (std::size_t turn = 0; turn < classes; ++turn) {
      TileSums<Isa, panels, tokens> acc, minima;
      clear(acc);
      clear(minima);
      for (std::size_t left = class_blocks(class_at(turn, classes), blocks); left > 0; --left) {
        ahead.prefetch<Isa>();
        Step::template step<Isa, Shape, panels, tokens>(record, x, acc, minima);
        record += panels * Shape::bytes;
        x += TokenShape<Shape>::bytes(tokens);
      }
      if constexpr (Shape::minima)
        for (std::size_t p = 0; p < panels; ++p)
          for (std::size_t t = 0; t < tokens; ++t)
            acc.of[p][t] = Step::template with_minima<Isa>(acc.of[p][t], minima.of[p][t]);
      join_class<Isa, panels, tokens>(acc, turn, levels);
    }
    store_results<Isa, panels, tokens>(levels, classes, y, y_stride);
  }
};

struct BlockStep {
  template <class Isa, class Shape, std::size_t panels, std::size_t tokens>
  [[gnu::always_inline]] static void step(const std::byte* record, const std::byte* x,
                                          TileSums<Isa, panels, tokens>& acc,
                                          TileSums<Isa, panels, tokens>& minima) {
    step_block<Isa, Shape, panels, tokens>(record, x, acc, minima);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 with_minima(typename Isa::F32x16 products,
                                                                 typename Isa::F32x16 minima) {
    return Isa::add(products, minima);
  }
};

// A tile of `tokens` tokens, most or fewer.
template <class Tile, class Isa, class Shape, std::size_t most>
void run_tile(std::size_t tokens, const std::byte* records, const std::byte* x, std::size_t blocks,
              WeightsAhead& ahead, float* y, std::size_t y_stride) {
  if constexpr (most > 1)
    if (tokens < most)
      return run_tile<Tile, Isa, Shape, most - 1>(tokens, records, x, blocks, ahead, y, y_stride);
  Tile::template run<Isa, Shape, most>(records, x, blocks, ahead, y, y_stride);
}

// All rows that fill panels, by a portion of the tokens at a time, so many that they fit beside the
// panels in `scratch`. pack(row, order, panels) unpacks the rows of a tile.
template <class Tile, class Isa, class Shape, std::size_t most, class Batch, class Pack>
[[gnu::always_inline]] inline std::size_t run_panels(const WeightRows& weights, std::size_t blocks,
                                                     const Batch& x, std::size_t tokens,
                                                     std::int32_t offset, float* y,
                                                     std::size_t y_stride, std::byte* scratch,
                                                     Pack pack) {
  constexpr std::size_t panels = Tile::template panels<Isa>;
  constexpr std::size_t rows = panel_rows * panels;
  const RecordOrder order(blocks);
  std::byte* const token_records = scratch + blocks * panels * Shape::bytes;
  const std::size_t per_token = blocks * TokenShape<Shape>::bytes(1);
  const std::size_t room = panel_token_bytes(weights.columns) / per_token / most * most;
  const TokenTiles portions(tokens, room);
  const std::size_t full_rows = weights.rows / rows * rows;
  std::size_t first = 0;
  for (std::size_t portion = 0; portion < portions.count; ++portion) {
    const TokenTiles tiles(portions.of(portion), most);
    std::byte* at = token_records;
    std::size_t token = first;
    for (std::size_t tile = 0; tile < tiles.count; ++tile) {
      place_tokens<Shape>(x, token, tiles.of(tile), blocks, order, offset, at);
      at += tiles.of(tile) * per_token;
      token += tiles.of(tile);
    }
    for (std::size_t row = 0; row < full_rows; row += rows) {
      pack(row, order, scratch);
      WeightsAhead ahead(weights.data + (row + rows) * weights.row_bytes, rows * weights.row_bytes,
                         tiles.count * Tile::steps(blocks));
      at = token_records;
      token = first;
      for (std::size_t tile = 0; tile < tiles.count; ++tile) {
        run_tile<Tile, Isa, Shape, most>(tiles.of(tile), scratch, at, blocks, ahead,
                                         y + token * y_stride + row, y_stride);
        at += tiles.of(tile) * per_token;
        token += tiles.of(tile);
      }
    }
    first = token;
  }
  return full_rows;
}

template <class Isa, class Format>
std::size_t panel_q8(const WeightRows& weights, const Q8Batch& x, std::size_t tokens, float* y,
                     std::size_t y_stride, std::byte* scratch) {
  using Shape = BlockShape<Isa, Format>;
  return run_panels<ClassTile<BlockStep>, Isa, Shape, Isa::panel_tokens>(
      weights, weights.columns / 32, x, tokens, Format::template offset<Isa>, y, y_stride, scratch,
      [&](std::size_t row, const RecordOrder& order, std::byte* panels) {
        for (std::size_t p = 0; p < Isa::panels; ++p)
          pack_blocks<Isa, Format>(weights, row + panel_rows * p, order, panels + p * Shape::bytes,
                                   Isa::panels * Shape::bytes);
      });
}

}  // namespace
}  // namespace millrace
