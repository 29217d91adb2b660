// Products of NVFP4 weights and many tokens by panels (matmul_panel-inl.h), over an ISA policy: a
// record is a scale block of 16 values, the canonical classes are those blocks mod 16.
#pragma once

#include <cstring>

#include "kernels/formats/nvfp4-inl.h"
#include "kernels/matmul_panel-inl.h"

namespace millrace {
namespace {

using Nvfp4Shape = PanelShape<1, 4, 31, false>;
inline constexpr std::size_t nvfp4_scale_values = 16;

// Scale and codes of the scale blocks of 16 rows, `row` and on, to records `record_step` apart.
template <class Isa>
void pack_nvfp4(const WeightRows& weights, std::size_t row, const RecordOrder& order,
                std::byte* panel, std::size_t record_step) {
  const auto table = Isa::table_b64(Isa::load_b16(mxfp4_unsigned.bytes));
  const std::size_t blocks = weights.columns / nvfp4_scale_values;
  for (std::size_t g = 0; g * group_blocks < blocks; ++g) {
    const std::size_t left = blocks - g * group_blocks;
    const std::size_t count = left < group_blocks ? left : group_blocks;
    const std::byte* const group =
        weights.data + row * weights.row_bytes + g * FormatNvfp4::group_bytes;
    alignas(64) float scale[16][16];
    for (std::size_t r = 0; r < panel_rows; ++r) {
      std::byte bytes[16] = {};
      for (std::size_t i = 0; i < count; i += 4)
        std::memcpy(bytes + i, group + r * weights.row_bytes + i / 4 * FormatNvfp4::block_bytes, 4);
      const auto ordered = Isa::lookup16(Isa::load_b16(bytes), Isa::load_b16(fp4_group.at));
      Isa::store(scale[r], FormatNvfp4::half_scales<Isa>(ordered));
    }
    pack_factors<Isa>(scale, g, count, order, panel, record_step, Nvfp4Shape::scale);
    for (std::size_t b = 0; b < count; b += 2) {  // two in 16 bytes
      typename Isa::B64 q[4];
      load_words<Isa>(
          group + b / 4 * FormatNvfp4::block_bytes + offsetof(BlockNvfp4, q) + b % 4 / 2 * 16,
          weights.row_bytes, q);
      for (std::size_t half = 0; half < 2; ++half) {
        std::byte* const record = panel + order.place(g * group_blocks + b + half) * record_step;
        for (std::size_t w = 0; w < 2; ++w) {
          const auto& both = q[2 * half + w];
          Isa::store_b64(record + 64 * w, Isa::lookup16(table, Isa::low_nibbles(both)));
          Isa::store_b64(record + 128 + 64 * w, Isa::lookup16(table, Isa::high_nibbles(both)));
        }
      }
    }
  }
}

// Tokens [first, first + tokens), by blocks of 16 values whose scale is that of 32.
struct Nvfp4Batch : Q8Batch {};
template <class Shape>
void place_tokens(const Nvfp4Batch& x, std::size_t first, std::size_t tokens, std::size_t blocks,
                  const RecordOrder& order, std::int32_t offset, std::byte* records) {
  const std::size_t step = TokenShape<Shape>::bytes(tokens);
  for (std::size_t t = 0; t < tokens; ++t) {
    const std::int8_t* q = x.q + (first + t) * x.q_stride;
    const float* const scale = x.scale + (first + t) * x.block_stride;
    for (std::size_t b = 0; b < blocks; ++b, q += nvfp4_scale_values) {
      std::int32_t sum = 0;
      for (std::size_t i = 0; i < nvfp4_scale_values; ++i) sum += q[i];
      TokenPlace4 place(records + order.place(b) * step, t, tokens);
      place.put_bytes(q, Shape::steps);
      place.put(-offset * sum);
      place.put(scale[b / 2]);
    }
  }
}

template <class Isa>
std::size_t panel_nvfp4(const WeightRows& weights, const Q8Batch& x, std::size_t tokens, float* y,
                        std::size_t y_stride, std::byte* scratch) {
  return run_panels<ClassTile<BlockStep>, Isa, Nvfp4Shape, Isa::panel_tokens>(
      weights, weights.columns / nvfp4_scale_values, Nvfp4Batch{x}, tokens, mxfp4_code_offset, y,
      y_stride, scratch, [&](std::size_t row, const RecordOrder& order, std::byte* panels) {
        for (std::size_t p = 0; p < Isa::panels; ++p)
          pack_nvfp4<Isa>(weights, row + panel_rows * p, order, panels + p * Nvfp4Shape::bytes,
                          Isa::panels * Nvfp4Shape::bytes);
      });
}

}  // namespace
}  // namespace millrace
