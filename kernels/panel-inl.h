// Panels: the weights of 16 rows repacked so that lane = row, over an ISA policy. A panel holds a
// record per block: the codes, four consecutive values of each row in a 32-bit lane, then the
// rows' scales, and whatever else the block has; all vectors of 64 bytes. Records lie in the order
// in which products take them: the canonical classes (blocks b mod 16) one after the other, in the
// order in which the tree of the classes' sums can be built as they come.
#pragma once

#include <cstring>

#include "kernels/formats/nibble_blocks-inl.h"
#include "kernels/formats/q8_0-inl.h"
#include "kernels/formats/scaled-inl.h"
#include "kernels/matmul_fp4-inl.h"
#include "kernels/matmul_q8-inl.h"
#include "kernels/panel_kernels.h"
#include "kernels/prefetch-inl.h"

namespace millrace {
namespace {

inline constexpr std::size_t panel_rows = 16;

// A record: `parts` sums with integer scales of their own (or one, without), each over `steps`
// times four values. Codes are 0 .. `largest`, or if that is 0 signed as Isa::dot4_i takes them.
template <std::size_t parts_, std::size_t steps_, unsigned largest_, bool minima_>
struct PanelShape {
  static constexpr std::size_t parts = parts_;
  static constexpr std::size_t steps = steps_;
  static constexpr unsigned largest = largest_;
  static constexpr bool minima = minima_;
  static constexpr std::size_t values = 4 * parts * steps;
  // Where the vectors lie, in bytes.
  static constexpr std::size_t scale = values * panel_rows;
  static constexpr std::size_t minimum = scale + 64;
  static constexpr std::size_t part_scales = minimum + (minima ? 64 : 0);  // int32, one per part
  static constexpr std::size_t part_minima = part_scales + (parts > 1 ? 64 * parts : 0);
  // Pairs of 16-bit numbers: two parts in a vector.
  static constexpr std::size_t bytes = part_minima + (parts > 1 && minima ? 32 * parts : 0);
};

// Classes (blocks b mod 16) in bit-reversed order: when the sums of every two finished halves are
// added up, from the bottom up, they join as the canonical tree wants it.
inline constexpr std::size_t class_order[16] = {0, 8, 4, 12, 2, 10, 6, 14,
                                                1, 9, 5, 13, 3, 11, 7, 15};

// How many classes a row of so many blocks has, a power of two: the others' sums are +0, and
// adding these once at the end gives the same bits.
constexpr std::size_t class_count(std::size_t blocks) {
  std::size_t count = 16;
  while (count > 1 && blocks <= count / 2) count /= 2;
  return count;
}
constexpr std::size_t class_at(std::size_t turn, std::size_t classes) {
  return class_order[turn * (16 / classes)];
}

// Where the record of a block lies: starts[b mod 16] + b / 16.
struct RecordOrder {
  std::size_t starts[16] = {};
  explicit RecordOrder(std::size_t blocks) {
    const std::size_t classes = class_count(blocks);
    std::size_t at = 0;
    for (std::size_t turn = 0; turn < classes; ++turn) {
      const std::size_t first = class_at(turn, classes);
      starts[first] = at;
      if (first < blocks) at += (blocks + 15 - first) / 16;
    }
  }
  std::size_t place(std::size_t block) const { return starts[block % 16] + block / 16; }
};

// Sixteen vectors, one per row, become sixteen with lane = row: word w of lane j of them becomes
// out[4j + w].
template <class Isa>
[[gnu::always_inline]] inline void transpose_rows(typename Isa::B64 (&v)[16],
                                                  typename Isa::B64 (&out)[16]) {
  typename Isa::B64 words[4][4];  // [word][group of four rows]
  for (std::size_t group = 0; group < 4; ++group) {
    typename Isa::B64 four[4] = {v[4 * group], v[4 * group + 1], v[4 * group + 2],
                                 v[4 * group + 3]};
    Isa::transpose_words(four);
    for (std::size_t w = 0; w < 4; ++w) words[w][group] = four[w];
  }
  for (std::size_t w = 0; w < 4; ++w) {
    Isa::transpose_lanes(words[w]);
    for (std::size_t j = 0; j < 4; ++j) out[4 * j + w] = words[w][j];
  }
}

// --- blocks of 32 values ---

// Whether a format's codes come signed; with Isa::signed_bias added by the format, or not.
enum class CodeSigns { none, plain, biased };
template <class Format>
inline constexpr CodeSigns code_signs = CodeSigns::none;
template <>
inline constexpr CodeSigns code_signs<FormatQ8_0> = CodeSigns::plain;
template <>
inline constexpr CodeSigns code_signs<FormatIQ4_NL> = CodeSigns::biased;

// Unsigned codes have five bits at most.
template <class Isa, class Format>
using BlockShape =
    PanelShape<1, 8, code_signs<Format> == CodeSigns::none ? 31 : 0, has_minima<Isa, Format>>;

// A vector that has been loaded already.
template <class Isa>
struct BlocksInHand {
  const typename Isa::B64& q;
  [[gnu::always_inline]] typename Isa::B64 load(std::size_t) const { return q; }
};

// Sixteen bytes of each of 16 rows: lane = row, v[w] has their words w.
template <class Isa>
[[gnu::always_inline]] inline void load_words(const std::byte* first, std::size_t row_bytes,
                                              typename Isa::B64 (&v)[4]) {
  for (std::size_t g = 0; g < 4; ++g) {
    const std::byte* const row = first + g * row_bytes;
    const std::byte* const rows[4] = {row, row + 4 * row_bytes, row + 8 * row_bytes,
                                      row + 12 * row_bytes};
    v[g] = Isa::load_rows(rows, 0);
  }
  Isa::transpose_words(v);
}

// The codes of one block of 16 rows to its record. What a format does with the bytes it loads does
// not mix them, so that rows may be in their lanes before.
template <class Isa, class Format>
[[gnu::always_inline]] inline void pack_codes(const std::byte* block, std::size_t row_bytes,
                                              std::byte* record) {
  constexpr bool flip = code_signs<Format> == CodeSigns::plain && Isa::signed_bias != 0;
  typename Isa::B64 lo[4], hi[4];
  if constexpr (requires { Format::nibbles; }) {
    typename Isa::B64 q[4];
    load_words<Isa>(block + Format::nibbles, row_bytes, q);
    for (std::size_t w = 0; w < 4; ++w)
      Format::template codes_of<Isa>(BlocksInHand<Isa>{q[w]}, lo[w], hi[w]);
  } else {
    for (std::size_t g = 0; g < 4; ++g) {
      const std::byte* const row = block + g * row_bytes;
      const std::byte* const rows[4] = {row, row + 4 * row_bytes, row + 8 * row_bytes,
                                        row + 12 * row_bytes};
      Format::template codes_of<Isa>(BlocksOfRows<Isa>{rows}, lo[g], hi[g]);
    }
    Isa::transpose_words(lo);
    Isa::transpose_words(hi);
  }
  for (std::size_t w = 0; w < 4; ++w) {
    Isa::store_b64(record + 64 * w, flip ? Isa::flip_sign(lo[w]) : lo[w]);
    Isa::store_b64(record + 256 + 64 * w, flip ? Isa::flip_sign(hi[w]) : hi[w]);
  }
}

// One factor per row and block of a group, to `offset` of the blocks' records. rows[r]: a row's 16
// factors in group order, so that lane 4j + q is block 4q + j.
template <class Isa>
[[gnu::always_inline]] inline void pack_factors(const float (&rows)[16][16], std::size_t group,
                                                std::size_t count, const RecordOrder& order,
                                                std::byte* panel, std::size_t record_step,
                                                std::size_t offset) {
  typename Isa::B64 in[16], out[16];
  for (std::size_t r = 0; r < 16; ++r) in[r] = Isa::load_b64(rows[r]);
  transpose_rows<Isa>(in, out);
  for (std::size_t lane = 0; lane < 16; ++lane) {
    const std::size_t b = lane % 4 * 4 + lane / 4;
    if (b < count)
      Isa::store_b64(panel + order.place(group_blocks * group + b) * record_step + offset,
                     out[lane]);
  }
}

// A row's group of blocks (`count`, 16 but for the last) where 16 may be read.
template <class Isa, class Format>
class PackedGroup {
 public:
  [[gnu::always_inline]] PackedGroup(const WeightRows& weights, std::size_t row, std::size_t g,
                                     std::size_t count)
      : group_(weights, row, g, count) {}
  const std::byte* codes() const { return group_.data(); }
  GroupScales<Isa> scales() const { return load_scales<Isa, Format>(group_.data()); }

 private:
  TailGroup<Format> group_;
};
template <class Isa>
class PackedGroup<Isa, FormatFp4> {
 public:
  [[gnu::always_inline]] PackedGroup(const WeightRows& weights, std::size_t row, std::size_t g,
                                     std::size_t count)
      : group_(weights.data + row * weights.row_bytes + g * group_blocks * FormatFp4::block_bytes,
               scale_row(weights, row, 1) + g * group_blocks, count) {}
  const std::byte* codes() const { return group_.codes(); }
  const GroupScales<Isa>& scales() const { return group_.scales(); }

 private:
  Fp4Group<Isa> group_;
};

// Rows `row` .. row + 15 to records `record_step` bytes apart.
template <class Isa, class Format>
void pack_blocks(const WeightRows& weights, std::size_t row, const RecordOrder& order,
                 std::byte* panel, std::size_t record_step) {
  using Shape = BlockShape<Isa, Format>;
  const std::size_t blocks = weights.columns / 32;
  const std::byte* const first = weights.data + row * weights.row_bytes;
  for (std::size_t g = 0; g * group_blocks < blocks; ++g) {
    const std::size_t left = blocks - g * group_blocks;
    const std::size_t count = left < group_blocks ? left : group_blocks;
    alignas(64) float scale[16][16], minimum[16][16];
    for (std::size_t r = 0; r < panel_rows; ++r) {
      const PackedGroup<Isa, Format> group(weights, row + r, g, count);
      const GroupScales<Isa> one = group.scales();
      Isa::store(scale[r], one.scale);
      if constexpr (Shape::minima) Isa::store(minimum[r], one.minimum);
    }
    pack_factors<Isa>(scale, g, count, order, panel, record_step, Shape::scale);
    if constexpr (Shape::minima)
      pack_factors<Isa>(minimum, g, count, order, panel, record_step, Shape::minimum);
    for (std::size_t b = 0; b < count; ++b) {
      const std::size_t block = g * group_blocks + b;
      pack_codes<Isa, Format>(first + block * Format::block_bytes, weights.row_bytes,
                              panel + order.place(block) * record_step);
    }
  }
}

}  // namespace
}  // namespace millrace
