// Panels (panel-inl.h) of super-blocks of 256 values, over an ISA policy and a format of
// super_block-inl.h.
#pragma once

#include "kernels/formats/k_quants-inl.h"
#include "kernels/panel-inl.h"

namespace millrace {
namespace {

// A bound of the codes, the same for all that can share products; 0 if they are signed.
template <class Format>
inline constexpr unsigned largest_super_code = 0;
template <>
inline constexpr unsigned largest_super_code<FormatQ2_K> = 63;
template <>
inline constexpr unsigned largest_super_code<FormatQ3_K> = 63;
template <>
inline constexpr unsigned largest_super_code<FormatQ4_K> = 31;
template <>
inline constexpr unsigned largest_super_code<FormatQ5_K> = 31;
template <>
inline constexpr unsigned largest_super_code<FormatQ6_K> = 63;

template <class Format>
using SuperShape = PanelShape<Format::sub_scales, 64 / Format::sub_scales,
                              largest_super_code<Format>, Format::has_minima>;

// What the codes of a panel have in common and products take off again.
template <class Isa, class Format>
inline constexpr std::int32_t panel_offset = Format::code_offset + (largest_super_code<Format> == 0
                                                                        ? Isa::signed_bias
                                                                        : 0);

template <class Isa, class Format>
[[gnu::always_inline]] inline void pack_super_codes(const std::byte* const (&rows)[panel_rows],
                                                    std::byte* record) {
  constexpr bool flip =
      largest_super_code<Format> == 0 && Isa::signed_bias != 0 && Format::template bias<Isa> == 0;
  typename Isa::B64 codes[4][panel_rows];
  for (std::size_t r = 0; r < panel_rows; ++r) {
    typename Isa::B64 one[4];
    Format::template codes<Isa>(rows[r], one);
    for (std::size_t v = 0; v < 4; ++v) codes[v][r] = flip ? Isa::flip_sign(one[v]) : one[v];
  }
  for (std::size_t v = 0; v < 4; ++v) {
    typename Isa::B64 out[16];
    transpose_rows<Isa>(codes[v], out);
    for (std::size_t j = 0; j < 4; ++j)
      for (std::size_t w = 0; w < 4; ++w)
        Isa::store_b64(record + 64 * (4 * unit_at(Format::layout, v, j) + w), out[4 * j + w]);
  }
}

// Eight 16-bit numbers in lane r of four[g] belong to row 4g + r: pairs[i] has the pairs 2i and
// 2i + 1 of all rows.
template <class Isa>
[[gnu::always_inline]] inline void transpose_pairs(typename Isa::B64 (&four)[4]) {
  Isa::transpose_lanes(four);
  Isa::transpose_words(four);
}

template <class Isa, class Shape>
[[gnu::always_inline]] inline void store_part_scale(std::byte* record, std::size_t part,
                                                    const typename Isa::I32x16& scale) {
  Isa::store_b64(record + Shape::part_scales + 64 * part, Isa::bytes(scale));
}

template <class Isa, class Format>
[[gnu::always_inline]] inline void pack_super_scales(const SuperHeader<Isa> (&of)[4],
                                                     std::byte* record) {
  using Shape = SuperShape<Format>;
  constexpr std::size_t halves = Shape::parts / 8;
  for (std::size_t i = 0; Format::paired && i < 2; ++i) {
    typename Isa::B64 four[4];
    for (std::size_t g = 0; g < 4; ++g) four[g] = Isa::bytes(of[g].pair_scale[i]);
    Isa::transpose_lanes(four);
    for (std::size_t j = 0; j < 4; ++j)
      store_part_scale<Isa, Shape>(record, unit_at(Format::layout, 2 * i, j) / 2,
                                   Isa::words(four[j]));
  }
  for (std::size_t i = 0; !Format::paired && i < halves; ++i) {
    typename Isa::B64 four[4] = {of[0].scale[i], of[1].scale[i], of[2].scale[i], of[3].scale[i]};
    transpose_pairs<Isa>(four);
    for (std::size_t j = 0; j < 4; ++j) {
      const auto both = Isa::words(four[j]);
      store_part_scale<Isa, Shape>(record, 8 * i + 2 * j,
                                   Isa::template sra_i<16>(Isa::template shl_i<16>(both)));
      store_part_scale<Isa, Shape>(record, 8 * i + 2 * j + 1, Isa::template sra_i<16>(both));
    }
  }
  if constexpr (Shape::minima) {
    for (std::size_t i = 0; i < halves; ++i) {
      typename Isa::B64 four[4] = {of[0].minimum[i], of[1].minimum[i], of[2].minimum[i],
                                   of[3].minimum[i]};
      transpose_pairs<Isa>(four);
      for (std::size_t j = 0; j < 4; ++j)
        Isa::store_b64(record + Shape::part_minima + 64 * (4 * i + j), four[j]);
    }
  }
}

template <class Isa, class Format>
void pack_super_record(const std::byte* const (&rows)[panel_rows], std::byte* record) {
  using Shape = SuperShape<Format>;
  pack_super_codes<Isa, Format>(rows, record);
  SuperHeader<Isa> headers[4];
  typename Isa::I32x16 words[4];
  for (std::size_t g = 0; g < 4; ++g) {
    const std::byte* const four[super_rows] = {rows[4 * g], rows[4 * g + 1], rows[4 * g + 2],
                                               rows[4 * g + 3]};
    Format::template header<Isa>(four, headers[g]);
    words[g] = headers[g].words;
  }
  pack_super_scales<Isa, Format>(headers, record);
  const auto factors = Isa::group_order_i(Isa::template pick_words<Format::factor_word>(words));
  Isa::store(reinterpret_cast<float*>(record + Shape::scale),
             Format::template factors<Isa>(factors));
  if constexpr (Shape::minima)
    Isa::store(reinterpret_cast<float*>(record + Shape::minimum),
               Format::template minimum_factors<Isa>(factors));
}

// Rows `row` .. row + 15 to records `record_step` bytes apart.
template <class Isa, class Format>
void pack_supers(const WeightRows& weights, std::size_t row, const RecordOrder& order,
                 std::byte* panel, std::size_t record_step) {
  const std::byte* rows[panel_rows];
  for (std::size_t r = 0; r < panel_rows; ++r)
    rows[r] = weights.data + (row + r) * weights.row_bytes;
  for (std::size_t b = 0; b < weights.columns / super_values; ++b) {
    pack_super_record<Isa, Format>(rows, panel + order.place(b) * record_step);
    for (const std::byte*& at : rows) at += Format::block_bytes;
  }
}

}  // namespace
}  // namespace millrace
