// Panels (panel-inl.h) of weights as floats, for unrounded activations, over an ISA policy and a
// format: a record is one column of 16 rows, the canonical classes are columns i mod 16.
#pragma once

#include <cstring>

#include "kernels/formats/float-inl.h"
#include "kernels/matmul_scaled-inl.h"
#include "kernels/panel_tokens-inl.h"

namespace millrace {
namespace {

template <class Format>
inline constexpr bool is_scaled_format = requires {
  Format::tile_columns;
};

struct FloatShape {
  static constexpr std::size_t bytes = 4 * panel_rows;
};
template <>
struct TokenShape<FloatShape> {
  static constexpr std::size_t bytes(std::size_t tokens) { return 4 * tokens; }
};

// Columns that are decoded before they are turned, a tile of FP8's scales.
inline constexpr std::size_t turn_columns = 128;

// Columns [column, column + count) of a row, as floats; up to 16 more are written.
template <class Isa, class Format>
[[gnu::always_inline]] inline void decode_part(const WeightRows& weights, std::size_t row,
                                               std::size_t column, std::size_t count, float* out) {
  const std::byte* codes =
      weights.data + row * weights.row_bytes + column / 16 * Format::step_bytes;
  auto scale = Isa::zero();
  if constexpr (is_scaled_format<Format>)
    scale = Isa::set1(Format::scale(weights.scale_type, scale_row(weights, row, Format::tile_rows),
                                    column / Format::tile_columns));
  for (std::size_t i = 0; i < count; i += 16, codes += Format::step_bytes) {
    const std::size_t left = count - i;
    if constexpr (is_scaled_format<Format>) {
      const auto values =
          left >= 16 ? Format::template values<Isa>(codes) : first_values<Isa, Format>(codes, left);
      Isa::store(out + i, Isa::mul(values, scale));
    } else if (left >= 16) {
      typename Isa::F32x16 values[1];
      Format::template decode<Isa>(codes, values);
      Isa::store(out + i, values[0]);
    } else {
      Isa::store(out + i, Format::template decode_first<Isa>(codes, left));
    }
  }
}

// Rows `row` .. row + 15, of `records` columns: those past the row's end are zero.
template <class Isa, class Format>
void pack_floats(const WeightRows& weights, std::size_t row, std::size_t records,
                 const RecordOrder& order, std::byte* panel) {
  alignas(64) float rows[panel_rows][turn_columns];
  const auto* const bytes = reinterpret_cast<const std::byte*>(rows);
  for (std::size_t first = 0; first < records; first += turn_columns) {
    const std::size_t left = weights.columns - first;
    const std::size_t count = left < turn_columns ? left : turn_columns;
    for (std::size_t r = 0; r < panel_rows; ++r)
      decode_part<Isa, Format>(weights, row + r, first, count, rows[r]);
    const std::size_t end = records - first < turn_columns ? records - first : turn_columns;
    for (std::size_t i = 0; i < end; i += 4) {
      typename Isa::B64 columns[4];
      load_words<Isa>(bytes + 4 * i, sizeof rows[0], columns);
      for (std::size_t w = 0; w < 4 && i + w < end; ++w)
        Isa::store_b64(panel + order.place(first + i + w) * FloatShape::bytes, columns[w]);
    }
  }
}

// Tokens [first, first + tokens) of unrounded activations, of `x.columns` columns, the others zero.
struct FloatBatch : F32Batch {
  std::size_t columns;
};
template <class Shape>
void place_tokens(const FloatBatch& x, std::size_t first, std::size_t tokens, std::size_t records,
                  const RecordOrder& order, std::int32_t /*offset*/, std::byte* out) {
  const std::size_t step = TokenShape<Shape>::bytes(tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    const float* const values = x.x + (first + t) * x.stride;
    for (std::size_t i = 0; i < records; ++i) {
      const float value = i < x.columns ? values[i] : 0.0f;
      std::memcpy(out + order.place(i) * step + 4 * t, &value, 4);
    }
  }
}

}  // namespace
}  // namespace millrace
