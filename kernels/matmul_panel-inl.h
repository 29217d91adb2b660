// Products of quantized weights and many tokens by panels (panel-inl.h), over an ISA policy. A tile
// is some panels by some tokens: for each block, the panels' codes meet four bytes of a token's
// activations in all lanes at once, so that a sum of 16 rows is one vector and nothing has to be
// reduced across lanes. A tile takes the canonical classes one after the other; the 16 finished
// sums of a result join in the canonical tree as they come.
#pragma once

#include "kernels/panel-inl.h"

namespace millrace {
namespace {

// What a tile needs of its tokens besides q. Vectors of 16 in [group of 16 blocks][token]: a
// block's values of all tokens lie a fixed distance apart.
template <class Shape, std::size_t tokens>
struct TileTokens {
  const std::int8_t* q[tokens];
  const float* scale;         // da
  const std::int32_t* start;  // what a sum starts with: the codes' common offset times -sum(q)
  const std::int32_t* sum;    // with minima: sum(q)
};

template <std::size_t tokens>
constexpr std::size_t tile_place(std::size_t block, std::size_t token) {
  return (block / 16 * tokens + token) * 16 + block % 16;
}

// The dots of one part of a record: sum[p][t] += panel p's rows times token t.
template <class Isa, class Shape, std::size_t panels, std::size_t tokens>
[[gnu::always_inline]] inline void dot_part(const std::byte* codes,
                                            const std::int8_t* const (&q)[tokens], std::size_t at,
                                            typename Isa::I32x16 (&sum)[panels][tokens]) {
  const auto load = [&](typename Isa::B64(&w)[panels], std::size_t k) {
    for (std::size_t p = 0; p < panels; ++p)
      w[p] = Isa::load_b64(codes + p * Shape::bytes + 64 * k);
  };
  if constexpr (Shape::largest == 0) {
#pragma GCC unroll 8
    for (std::size_t k = 0; k < Shape::steps; ++k) {
      typename Isa::B64 w[panels];
      load(w, k);
      for (std::size_t t = 0; t < tokens; ++t) {
        const auto a = Isa::spread4(q[t] + at + 4 * k);
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
          const auto a = Isa::spread4(q[t] + at + 4 * k);
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
template <class Isa, class Shape, bool started, std::size_t panels, std::size_t tokens>
[[gnu::always_inline]] inline void step_block(const std::byte* record,
                                              const TileTokens<Shape, tokens>& x, std::size_t block,
                                              TileSums<Isa, panels, tokens>& acc,
                                              TileSums<Isa, panels, tokens>& minima) {
  typename Isa::I32x16 sum[panels][tokens];
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t p = 0; p < panels; ++p)
      sum[p][t] = started ? Isa::set1_i(x.start[tile_place<tokens>(block, t)]) : Isa::zero_i();
  dot_part<Isa, Shape, panels, tokens>(record, x.q, 32 * block, sum);
  for (std::size_t p = 0; p < panels; ++p) {
    const std::byte* const own = record + p * Shape::bytes;
    const auto scale = Isa::load(reinterpret_cast<const float*>(own + Shape::scale));
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto da = Isa::set1(x.scale[tile_place<tokens>(block, t)]);
      acc.of[p][t] = Isa::fma(Isa::to_f32(sum[p][t]), Isa::mul(scale, da), acc.of[p][t]);
      if constexpr (Shape::minima) {
        const auto minimum = Isa::load(reinterpret_cast<const float*>(own + Shape::minimum));
        const auto q_sum = Isa::to_f32(Isa::set1_i(x.sum[tile_place<tokens>(block, t)]));
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

template <class Isa, class Shape, bool started, std::size_t panels, std::size_t tokens>
void block_tile(const std::byte* record, std::size_t blocks, const TileTokens<Shape, tokens>& x,
                float* y, std::size_t y_stride) {
  TileSums<Isa, panels, tokens> levels[5];
  const std::size_t classes = class_count(blocks);
  for (std::size_t turn = 0; turn < classes; ++turn) {
    TileSums<Isa, panels, tokens> acc, minima;
    clear(acc);
    clear(minima);
    for (std::size_t b = class_at(turn, classes); b < blocks;
         b += 16, record += panels * Shape::bytes)
      step_block<Isa, Shape, started, panels, tokens>(record, x, b, acc, minima);
    if constexpr (Shape::minima)
      for (std::size_t p = 0; p < panels; ++p)
        for (std::size_t t = 0; t < tokens; ++t)
          acc.of[p][t] = Isa::add(acc.of[p][t], minima.of[p][t]);
    join_class<Isa, panels, tokens>(acc, turn, levels);
  }
  store_results<Isa, panels, tokens>(levels, classes, y, y_stride);
}

// Brings a tile's scales, starts and sums together in `scratch`, then runs it.
template <class Isa, class Shape, std::int32_t offset, std::size_t tokens>
void run_block_tile(const std::byte* records, std::size_t blocks, const Q8Batch& x,
                    std::size_t token, float* y, std::size_t y_stride, std::byte* scratch) {
  const std::size_t count = (blocks + 15) / 16 * 16 * tokens;
  auto* const scale = reinterpret_cast<float*>(scratch);
  auto* const start = reinterpret_cast<std::int32_t*>(scale + count);
  auto* const sum = start + count;
  TileTokens<Shape, tokens> tile{{}, scale, start, sum};
  for (std::size_t t = 0; t < tokens; ++t) {
    tile.q[t] = x.q + (token + t) * x.q_stride;
    const std::size_t from = (token + t) * x.block_stride;
    for (std::size_t b = 0; b < blocks; b += 16) {
      const std::size_t to = tile_place<tokens>(b, t);
      Isa::store(scale + to, Isa::load(x.scale + from + b));
      const auto q_sum = Isa::load_i(x.sum + from + b);
      if constexpr (offset != 0) Isa::store_i(start + to, Isa::mul_i(q_sum, Isa::set1_i(-offset)));
      if constexpr (Shape::minima) Isa::store_i(sum + to, q_sum);
    }
  }
  block_tile<Isa, Shape, offset != 0, Isa::panels, tokens>(records, blocks, tile,
                                                           y + token * y_stride, y_stride);
}

// All tokens, in full tiles and a smaller last one.
template <class Isa, class Shape, std::int32_t offset, std::size_t tokens = Isa::panel_tokens>
void run_block_tiles(const std::byte* records, std::size_t blocks, const Q8Batch& x,
                     std::size_t token, std::size_t end, float* y, std::size_t y_stride,
                     std::byte* scratch) {
  for (; token + tokens <= end; token += tokens)
    run_block_tile<Isa, Shape, offset, tokens>(records, blocks, x, token, y, y_stride, scratch);
  if constexpr (tokens > 1)
    if (token < end)
      run_block_tiles<Isa, Shape, offset, tokens - 1>(records, blocks, x, token, end, y, y_stride,
                                                      scratch);
}

template <class Isa, class Format>
std::size_t panel_q8(const WeightRows& weights, const Q8Batch& x, std::size_t tokens, float* y,
                     std::size_t y_stride, std::byte* scratch) {
  using Shape = BlockShape<Isa, Format>;
  constexpr std::size_t rows = panel_rows * Isa::panels;
  constexpr std::size_t record_step = Isa::panels * Shape::bytes;
  const std::size_t blocks = weights.columns / 32;
  const RecordOrder order(blocks);
  std::size_t row = 0;
  for (; row + rows <= weights.rows; row += rows) {
    for (std::size_t p = 0; p < Isa::panels; ++p)
      pack_blocks<Isa, Format>(weights, row + panel_rows * p, order, scratch + p * Shape::bytes,
                               record_step);
    run_block_tiles<Isa, Shape, Format::template offset<Isa>>(
        scratch, blocks, x, 0, tokens, y + row, y_stride, scratch + blocks * record_step);
  }
  return row;
}

}  // namespace
}  // namespace millrace
