// AWQ over an ISA policy: 4-bit codes whose rows lie side by side (kernel_table.h). A chunk is 128
// rows, 64 bytes of each column. Four columns of it become four vectors by one transposition of
// bytes: in each 32-bit lane four columns' codes of one row in the low nibbles, and of another row
// in the high ones. So a lane is a row, as in panels, without repacking.
#pragma once

#include <cstring>

#include "kernels/kernel_table.h"

namespace millrace {
namespace {

// The rows of a word, by nibbles.
constexpr std::size_t awq_row_order[8] = {0, 2, 4, 6, 1, 3, 5, 7};

struct FormatAwq {
  static constexpr std::size_t chunk_rows = awq_chunk_rows;
  static constexpr std::size_t chunk_bytes = 64;
  static constexpr std::size_t word_rows = 8;
  static constexpr std::size_t vectors = 8;          // of 16 rows
  static constexpr std::size_t group_columns = 128;  // with a scale and a zero
  static constexpr std::size_t block_columns = 32;   // with a scale of the activations
  static constexpr std::size_t block_steps = 8;      // of four columns

  // The row of a chunk in lane `lane` of vector 2k + half: those of the words 4j + k, j the lane's
  // quarter, whose codes lie in low (half 0) or high nibbles.
  static constexpr std::size_t row_at(std::size_t vector, std::size_t lane) {
    const std::size_t word = lane / 4 * 4 + vector / 2;
    return word_rows * word + awq_row_order[lane % 4 * 2 + vector % 2];
  }
  // The row in lane `lane` of the vector of nibbles `nibble` of all 16 words.
  static constexpr std::size_t row_of_word(std::size_t nibble, std::size_t lane) {
    return word_rows * lane + awq_row_order[nibble];
  }

  // The first `bytes` of a chunk's 64; the others are zero.
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::B64 words(const std::byte* p, std::size_t bytes) {
    if (bytes == chunk_bytes) return Isa::load_b64(p);
    std::byte padded[chunk_bytes] = {};
    std::memcpy(padded, p, bytes);
    return Isa::load_b64(padded);
  }

  // Codes of four columns: v[k] has those of the words 4j + k.
  template <class Isa>
  [[gnu::always_inline]] static void columns(const std::byte* p, std::size_t stride,
                                             std::size_t bytes, typename Isa::B64 (&v)[4]) {
    for (std::size_t d = 0; d < 4; ++d) v[d] = words<Isa>(p + d * stride, bytes);
    Isa::transpose_bytes(v);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::B64 codes(const typename Isa::B64& v,
                                                        std::size_t half) {
    return half == 0 ? Isa::low_nibbles(v) : Isa::high_nibbles(v);
  }

  // The first `rows` of a chunk's halves in the order of the lanes (row_at); the others are zero.
  template <class Isa>
  static void scales(const std::byte* p, std::size_t rows, typename Isa::F32x16 (&out)[vectors]) {
    std::byte padded[chunk_rows * 2];
    if (rows < chunk_rows) {
      std::memset(padded, 0, sizeof padded);
      std::memcpy(padded, p, 2 * rows);
      p = padded;
    }
    const auto order = Isa::table_b64(Isa::load_b16(half_order));
    for (std::size_t k = 0; k < 4; ++k) {
      // Lane j: the eight rows of word 4j + k, those of low nibbles first.
      std::byte words[4][16], halves[2][4][8];
      Isa::store_b64(words, Isa::lookup16(Isa::template load_quad<64>(p + 16 * k), order));
      for (std::size_t j = 0; j < 4; ++j)
        for (std::size_t half = 0; half < 2; ++half)
          std::memcpy(halves[half][j], words[j] + 8 * half, 8);
      for (std::size_t half = 0; half < 2; ++half) {
        std::uint16_t ordered[16];
        std::memcpy(ordered, halves[half], sizeof ordered);
        out[2 * k + half] = Isa::load_f16(ordered);
      }
    }
  }

  // The same in the order of words (row_of_word).
  template <class Isa>
  static void scales_of_words(const std::byte* p, std::size_t rows,
                              typename Isa::F32x16 (&out)[vectors]) {
    std::uint16_t padded[chunk_rows] = {};
    std::memcpy(padded, p, rows * sizeof padded[0]);
    for (std::size_t v = 0; v < vectors; ++v) {
      std::uint16_t ordered[16];
      for (std::size_t lane = 0; lane < 16; ++lane) ordered[lane] = padded[row_of_word(v, lane)];
      out[v] = Isa::load_f16(ordered);
    }
  }

  // A chunk's scales and zeros of one group, by lanes.
  template <class Isa>
  struct Scales {
    typename Isa::F32x16 scale[vectors];
    typename Isa::F32x16 minus_zero[vectors];
  };
  template <class Isa>
  static void load_scales(const std::byte* scale, const std::byte* zero, std::size_t rows,
                          Scales<Isa>& out) {
    constexpr std::int8_t minus_ones[4] = {-1, -1, -1, -1};
    scales<Isa>(scale, rows, out.scale);
    typename Isa::B64 v[4];
    v[0] = words<Isa>(zero, rows / 2);
    v[1] = v[2] = v[3] = Isa::load_b64(no_codes);
    Isa::transpose_bytes(v);
    const auto factor = Isa::spread4(minus_ones);
    const auto none = Isa::load_b64(no_codes);
    for (std::size_t i = 0; i < vectors; ++i)
      out.minus_zero[i] = Isa::to_f32(Isa::dot_u(codes<Isa>(v[i / 2], i % 2), factor, none, none));
  }

 private:
  static constexpr std::byte no_codes[chunk_bytes] = {};
  // A word's eight halves, in bytes: rows 0 4 1 5, then 2 6 3 7.
  static constexpr std::byte half_order[16] = {
      std::byte{0},  std::byte{1},  std::byte{8},  std::byte{9}, std::byte{2},  std::byte{3},
      std::byte{10}, std::byte{11}, std::byte{4},  std::byte{5}, std::byte{12}, std::byte{13},
      std::byte{6},  std::byte{7},  std::byte{14}, std::byte{15}};
};

}  // namespace
}  // namespace millrace
