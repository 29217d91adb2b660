// Products of float weights and many tokens of unrounded activations by panels, over an ISA policy
// and a format: as matmul_panel-inl.h, with an fma for each column.
#pragma once

#include "kernels/matmul_panel-inl.h"
#include "kernels/panel_float-inl.h"

namespace millrace {
namespace {

struct FloatTile {
  template <class Isa>
  static constexpr std::size_t panels = 1;
  // Columns for each step of the weights' prefetch.
  static constexpr std::size_t columns_a_step = 4;
  static constexpr std::size_t steps(std::size_t columns) { return columns / columns_a_step + 1; }

  template <class Isa, std::size_t tokens>
  [[gnu::always_inline]] static void add_column(const std::byte* record, const std::byte* x,
                                                TileSums<Isa, 1, tokens>& acc) {
    const auto w = Isa::load(reinterpret_cast<const float*>(record));
    for (std::size_t t = 0; t < tokens; ++t)
      acc.of[0][t] = Isa::fma(w, Isa::set1(float_at(x + 4 * t)), acc.of[0][t]);
  }

  template <class Isa, class Shape, std::size_t tokens>
  static void run(const std::byte* record, const std::byte* x, std::size_t columns,
                  WeightsAhead& ahead, float* y, std::size_t y_stride) {
    constexpr std::size_t token_bytes = TokenShape<Shape>::bytes(tokens);
    TileSums<Isa, 1, tokens> levels[5];
    const std::size_t classes = class_count(columns);
    for (std::size_t turn = 0; turn < classes; ++turn) {
      TileSums<Isa, 1, tokens> acc;
      clear(acc);
      std::size_t left = class_blocks(class_at(turn, classes), columns);
      for (; left >= columns_a_step; left -= columns_a_step) {
        ahead.prefetch<Isa>();
#pragma GCC unroll 4
        for (std::size_t i = 0; i < columns_a_step; ++i)
          add_column<Isa, tokens>(record + i * Shape::bytes, x + i * token_bytes, acc);
        record += columns_a_step * Shape::bytes;
        x += columns_a_step * token_bytes;
      }
      for (; left > 0; --left, record += Shape::bytes, x += token_bytes)
        add_column<Isa, tokens>(record, x, acc);
      join_class<Isa, 1, tokens>(acc, turn, levels);
    }
    store_results<Isa, 1, tokens>(levels, classes, y, y_stride);
  }
};

template <class Isa, class Format>
std::size_t panel_f32(const WeightRows& weights, const F32Batch& x, std::size_t tokens, float* y,
                      std::size_t y_stride, std::byte* scratch) {
  // The products of single tokens take the rest of a row with zeros up to 16 columns, but that of a
  // row with scales alone.
  const std::size_t columns =
      is_scaled_format<Format> ? weights.columns : (weights.columns + 15) / 16 * 16;
  return run_panels<FloatTile, Isa, FloatShape, Isa::panel_float_tokens>(
      weights, columns, FloatBatch{x, weights.columns}, tokens, 0, y, y_stride, scratch,
      [&](std::size_t row, const RecordOrder& order, std::byte* panel) {
        pack_floats<Isa, Format>(weights, row, columns, order, panel);
      });
}

}  // namespace
}  // namespace millrace
