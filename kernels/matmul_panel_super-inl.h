// Products of super-blocks of 256 values and many tokens by panels, over an ISA policy and a
// format: as matmul_panel-inl.h, with the parts' integer scales (and minima) multiplied in first.
#pragma once

#include "kernels/matmul_panel-inl.h"
#include "kernels/panel_super-inl.h"

namespace millrace {
namespace {

// The scaled integer sums of a super-block.
template <class Isa, class Shape, std::size_t panels, std::size_t tokens>
[[gnu::always_inline]] inline void super_sums(const std::byte* record, const std::byte* x,
                                              typename Isa::I32x16 (&sum)[panels][tokens]) {
  for (std::size_t p = 0; p < panels; ++p)
    for (std::size_t t = 0; t < tokens; ++t) sum[p][t] = Isa::zero_i();
  for (std::size_t part = 0; part < Shape::parts; ++part) {
    typename Isa::I32x16 one[panels][tokens];
    start_part<Isa, Shape, panels, tokens>(x, part, one);
    dot_part<Isa, Shape, panels, tokens>(record + 64 * Shape::steps * part,
                                         x + TokenShape<Shape>::part(part, tokens), one);
    for (std::size_t p = 0; p < panels; ++p) {
      const auto scale = Isa::load_i(reinterpret_cast<const std::int32_t*>(
          record + p * Shape::bytes + Shape::part_scales + 64 * part));
      for (std::size_t t = 0; t < tokens; ++t)
        sum[p][t] = Isa::add_i(sum[p][t], Isa::mul_i(one[p][t], scale));
    }
  }
}

// One panel's minima times one token's sums.
template <class Isa, class Shape, std::size_t tokens>
[[gnu::always_inline]] inline typename Isa::I32x16 super_minima(const std::byte* own,
                                                                const std::byte* sums,
                                                                std::size_t token) {
  auto minima = Isa::zero_i();
  for (std::size_t i = 0; i < TokenShape<Shape>::sum_words; ++i) {
    const auto pair =
        Isa::spread4(reinterpret_cast<const std::int8_t*>(sums + 4 * (i * tokens + token)));
    minima = Isa::add_i(minima, Isa::madd(Isa::load_b64(own + Shape::part_minima + 64 * i), pair));
  }
  return minima;
}

template <class Isa, class Shape, std::size_t panels, std::size_t tokens>
[[gnu::always_inline]] inline void step_super_block(const std::byte* record, const std::byte* x,
                                                    TileSums<Isa, panels, tokens>& acc,
                                                    TileSums<Isa, panels, tokens>& minima) {
  using Tokens = TokenShape<Shape>;
  typename Isa::I32x16 sum[panels][tokens];
  super_sums<Isa, Shape, panels, tokens>(record, x, sum);
  for (std::size_t p = 0; p < panels; ++p) {
    const std::byte* const own = record + p * Shape::bytes;
    const auto scale = Isa::load(reinterpret_cast<const float*>(own + Shape::scale));
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto da = Isa::set1(float_at(x + Tokens::scale(tokens) + 4 * t));
      acc.of[p][t] = Isa::fma(Isa::to_f32(sum[p][t]), Isa::mul(scale, da), acc.of[p][t]);
      if constexpr (Shape::minima) {
        const auto minimum = Isa::load(reinterpret_cast<const float*>(own + Shape::minimum));
        const auto m = super_minima<Isa, Shape, tokens>(own, x + Tokens::sums(tokens), t);
        minima.of[p][t] = Isa::fma(Isa::to_f32(m), Isa::mul(minimum, da), minima.of[p][t]);
      }
    }
  }
}

struct SuperStep {
  template <class Isa, class Shape, std::size_t panels, std::size_t tokens>
  [[gnu::always_inline]] static void step(const std::byte* record, const std::byte* x,
                                          TileSums<Isa, panels, tokens>& acc,
                                          TileSums<Isa, panels, tokens>& minima) {
    step_super_block<Isa, Shape, panels, tokens>(record, x, acc, minima);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 with_minima(typename Isa::F32x16 products,
                                                                 typename Isa::F32x16 minima) {
    return Isa::sub(products, minima);
  }
};

template <class Isa, class Format>
std::size_t panel_q8_super(const WeightRows& weights, const Q8SuperBatch& x, std::size_t tokens,
                           float* y, std::size_t y_stride, std::byte* scratch) {
  using Shape = SuperShape<Format>;
  return run_panels<ClassTile<SuperStep>, Isa, Shape, Isa::panel_super_tokens>(
      weights, weights.columns / super_values, x, tokens, panel_offset<Isa, Format>, y, y_stride,
      scratch, [&](std::size_t row, const RecordOrder& order, std::byte* panels) {
        for (std::size_t p = 0; p < Isa::panels; ++p)
          pack_supers<Isa, Format>(weights, row + panel_rows * p, order, panels + p * Shape::bytes,
                                   Isa::panels * Shape::bytes);
      });
}

}  // namespace
}  // namespace millrace
