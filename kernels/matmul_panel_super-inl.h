// Products of super-blocks of 256 values and many tokens by panels, over an ISA policy and a
// format: as matmul_panel-inl.h, with the parts' integer scales (and minima) multiplied in first.
#pragma once

#include "kernels/matmul_panel-inl.h"
#include "kernels/panel_super-inl.h"

namespace millrace {
namespace {

// What a tile needs of its tokens besides q: scales as in TileTokens; of a super-block's parts 16
// numbers each in [super-block][token].
template <std::size_t tokens>
struct SuperTileTokens {
  const std::int8_t* q[tokens];
  const float* scale;
  const std::int32_t* start;  // the codes' common offset times -sum(q)
  const std::int16_t* sum;    // with minima: sum(q), a place of 32 for each 16
};
inline constexpr std::size_t start_places = 16;
inline constexpr std::size_t sum_places = 32;

// The scaled integer sums of a super-block.
template <class Isa, class Shape, bool started, std::size_t panels, std::size_t tokens>
[[gnu::always_inline]] inline void super_sums(const std::byte* record,
                                              const SuperTileTokens<tokens>& x, std::size_t block,
                                              typename Isa::I32x16 (&sum)[panels][tokens]) {
  for (std::size_t p = 0; p < panels; ++p)
    for (std::size_t t = 0; t < tokens; ++t) sum[p][t] = Isa::zero_i();
  for (std::size_t part = 0; part < Shape::parts; ++part) {
    typename Isa::I32x16 one[panels][tokens];
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::int32_t* const start = x.start + (block * tokens + t) * start_places + part;
      for (std::size_t p = 0; p < panels; ++p)
        one[p][t] = started ? Isa::set1_i(*start) : Isa::zero_i();
    }
    dot_part<Isa, Shape, panels, tokens>(record + 64 * Shape::steps * part, x.q,
                                         256 * block + 4 * Shape::steps * part, one);
    for (std::size_t p = 0; p < panels; ++p) {
      const auto scale = Isa::load_i(reinterpret_cast<const std::int32_t*>(
          record + p * Shape::bytes + Shape::part_scales + 64 * part));
      for (std::size_t t = 0; t < tokens; ++t)
        sum[p][t] = Isa::add_i(sum[p][t], Isa::mul_i(one[p][t], scale));
    }
  }
}

// One panel's minima times one token's sums.
template <class Isa, class Shape>
[[gnu::always_inline]] inline typename Isa::I32x16 super_minima(const std::byte* own,
                                                                const std::int16_t* sum) {
  auto minima = Isa::zero_i();
  for (std::size_t i = 0; i < Shape::parts / 2; ++i) {
    const auto pair = Isa::spread4(reinterpret_cast<const std::int8_t*>(sum + 2 * i));
    minima = Isa::add_i(minima, Isa::madd(Isa::load_b64(own + Shape::part_minima + 64 * i), pair));
  }
  return minima;
}

template <class Isa, class Shape, bool started, std::size_t panels, std::size_t tokens>
[[gnu::always_inline]] inline void step_super_block(const std::byte* record,
                                                    const SuperTileTokens<tokens>& x,
                                                    std::size_t block,
                                                    TileSums<Isa, panels, tokens>& acc,
                                                    TileSums<Isa, panels, tokens>& minima) {
  typename Isa::I32x16 sum[panels][tokens];
  super_sums<Isa, Shape, started, panels, tokens>(record, x, block, sum);
  for (std::size_t p = 0; p < panels; ++p) {
    const std::byte* const own = record + p * Shape::bytes;
    const auto scale = Isa::load(reinterpret_cast<const float*>(own + Shape::scale));
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto da = Isa::set1(x.scale[tile_place<tokens>(block, t)]);
      acc.of[p][t] = Isa::fma(Isa::to_f32(sum[p][t]), Isa::mul(scale, da), acc.of[p][t]);
      if constexpr (Shape::minima) {
        const auto minimum = Isa::load(reinterpret_cast<const float*>(own + Shape::minimum));
        const auto m = super_minima<Isa, Shape>(own, x.sum + (block * tokens + t) * sum_places);
        minima.of[p][t] = Isa::fma(Isa::to_f32(m), Isa::mul(minimum, da), minima.of[p][t]);
      }
    }
  }
}

template <class Isa, class Shape, bool started, std::size_t panels, std::size_t tokens>
void super_tile(const std::byte* record, std::size_t blocks, const SuperTileTokens<tokens>& x,
                float* y, std::size_t y_stride) {
  TileSums<Isa, panels, tokens> levels[5];
  const std::size_t classes = class_count(blocks);
  for (std::size_t turn = 0; turn < classes; ++turn) {
    TileSums<Isa, panels, tokens> acc, minima;
    clear(acc);
    clear(minima);
    for (std::size_t b = class_at(turn, classes); b < blocks;
         b += 16, record += panels * Shape::bytes)
      step_super_block<Isa, Shape, started, panels, tokens>(record, x, b, acc, minima);
    if constexpr (Shape::minima)
      for (std::size_t p = 0; p < panels; ++p)
        for (std::size_t t = 0; t < tokens; ++t)
          acc.of[p][t] = Isa::sub(acc.of[p][t], minima.of[p][t]);
    join_class<Isa, panels, tokens>(acc, turn, levels);
  }
  store_results<Isa, panels, tokens>(levels, classes, y, y_stride);
}

// One token's scales, starts and sums to their places in a tile.
template <class Isa, class Shape, std::int32_t offset, std::size_t tokens>
void place_super_token(const float* from_scale, const std::int16_t* from_sum, std::size_t blocks,
                       std::size_t t, float* scale, std::int32_t* start, std::int16_t* sum) {
  for (std::size_t b = 0; b < blocks; ++b) {
    scale[tile_place<tokens>(b, t)] = from_scale[b];
    const std::int16_t* const units = from_sum + 16 * b;
    std::int32_t* const starts = start + (b * tokens + t) * start_places;
    if constexpr (Shape::parts == 16) {
      for (std::size_t i = 0; offset != 0 && i < 16; ++i) starts[i] = -offset * units[i];
      if constexpr (Shape::minima)
        std::memcpy(sum + (b * tokens + t) * sum_places, units, 16 * sizeof *units);
    } else {
      for (std::size_t i = 0; offset != 0 && i < 8; ++i)
        starts[i] = -offset * (units[2 * i] + units[2 * i + 1]);
      if constexpr (Shape::minima)
        Isa::store_b64(sum + (b * tokens + t) * sum_places, Isa::pair_sums(units));
    }
  }
}

template <class Isa, class Shape, std::int32_t offset, std::size_t tokens>
void run_super_tile(const std::byte* records, std::size_t blocks, const Q8SuperBatch& x,
                    std::size_t token, float* y, std::size_t y_stride, std::byte* scratch) {
  auto* const start = reinterpret_cast<std::int32_t*>(scratch);
  auto* const sum = reinterpret_cast<std::int16_t*>(start + blocks * tokens * start_places);
  auto* const scale = reinterpret_cast<float*>(sum + blocks * tokens * sum_places);
  SuperTileTokens<tokens> tile{{}, scale, start, sum};
  for (std::size_t t = 0; t < tokens; ++t) {
    tile.q[t] = x.q + (token + t) * x.q_stride;
    place_super_token<Isa, Shape, offset, tokens>(x.scale + (token + t) * x.block_stride,
                                                  x.sum + (token + t) * x.q_stride / 16, blocks, t,
                                                  scale, start, sum);
  }
  super_tile<Isa, Shape, offset != 0, Isa::panels, tokens>(records, blocks, tile,
                                                           y + token * y_stride, y_stride);
}

template <class Isa, class Shape, std::int32_t offset, std::size_t tokens = Isa::panel_super_tokens>
void run_super_tiles(const std::byte* records, std::size_t blocks, const Q8SuperBatch& x,
                     std::size_t token, std::size_t end, float* y, std::size_t y_stride,
                     std::byte* scratch) {
  for (; token + tokens <= end; token += tokens)
    run_super_tile<Isa, Shape, offset, tokens>(records, blocks, x, token, y, y_stride, scratch);
  if constexpr (tokens > 1)
    if (token < end)
      run_super_tiles<Isa, Shape, offset, tokens - 1>(records, blocks, x, token, end, y, y_stride,
                                                      scratch);
}

template <class Isa, class Format>
std::size_t panel_q8_super(const WeightRows& weights, const Q8SuperBatch& x, std::size_t tokens,
                           float* y, std::size_t y_stride, std::byte* scratch) {
  using Shape = SuperShape<Format>;
  constexpr std::size_t rows = panel_rows * Isa::panels;
  constexpr std::size_t record_step = Isa::panels * Shape::bytes;
  const std::size_t blocks = weights.columns / super_values;
  const RecordOrder order(blocks);
  std::size_t row = 0;
  for (; row + rows <= weights.rows; row += rows) {
    for (std::size_t p = 0; p < Isa::panels; ++p)
      pack_supers<Isa, Format>(weights, row + panel_rows * p, order, scratch + p * Shape::bytes,
                               record_step);
    run_super_tiles<Isa, Shape, panel_offset<Isa, Format>>(
        scratch, blocks, x, 0, tokens, y + row, y_stride, scratch + blocks * record_step);
  }
  return row;
}

}  // namespace
}  // namespace millrace
