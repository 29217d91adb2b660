// Q2_K, Q3_K, Q4_K, Q5_K and Q6_K over an ISA policy. What a super-block format offers to the
// products: kernels/README.md.
#pragma once

#include "kernels/blocks.h"
#include "kernels/super_block-inl.h"

namespace millrace {
namespace {

// d as the lower or upper half of a word, dmin (where there is one) as the upper.
template <class Isa>
[[gnu::always_inline]] inline typename Isa::F32x16 upper_halves(const typename Isa::I32x16& words) {
  return Isa::half_words(Isa::template shr_i<16>(words));
}

// Sixteen bytes of each of the four rows, from `offset` on.
template <class Isa>
[[gnu::always_inline]] inline typename Isa::I32x16 row_words(
    const std::byte* const (&rows)[super_rows], std::size_t offset) {
  return Isa::words(Isa::load_rows(rows, offset));
}

// Where each byte of a 16-byte lane comes from (0x80: a zero, and after the given ones), or other
// bytes of a lane.
struct ByteOrder {
  std::byte from[16];
  template <class... Index>
  constexpr ByteOrder(Index... index) : from{static_cast<std::byte>(index)...} {
    for (std::size_t i = sizeof...(index); i < 16; ++i) from[i] = std::byte{0x80};
  }
};
template <class Isa>
[[gnu::always_inline]] inline typename Isa::B64 lane_bytes(const ByteOrder& order) {
  return Isa::table_b64(Isa::load_b16(order.from));
}

// Unsigned codes.
struct KQuant {
  template <class Isa>
  static constexpr bool signed_codes = false;
  template <class Isa>
  static constexpr std::int32_t bias = 0;
};

// Sixteen sub-scales; four vectors of bit fields of the same bytes.
struct KQuant16 : KQuant {
  static constexpr SuperLayout layout = SuperLayout::halves;
  static constexpr bool paired = false;
  static constexpr std::size_t sub_scales = 16;
};

// d and dmin, then eight scales and eight minima of 6 bits in 12 bytes. A byte of codes has two
// neighbouring sub-blocks in its nibbles: pair 0 is the even ones.
struct KQuant8 : KQuant {
  static constexpr SuperLayout layout = SuperLayout::columns;
  static constexpr bool paired = true;
  static constexpr std::size_t sub_scales = 8;
  static constexpr bool has_minima = true;
  static constexpr std::int32_t code_offset = 0;
  static constexpr int factor_word = 0;

  template <class Isa>
  [[gnu::always_inline]] static void header(const std::byte* const (&rows)[super_rows],
                                            SuperHeader<Isa>& out) {
    out.words = row_words<Isa>(rows, 0);  // d dmin | k0 | k1 | k2
    if constexpr (has_four_sums<Isa>) word_scales<Isa>(out);
    // Bytes: scales 0..3 and minima 0..3 are the low bits of k0 and k1; the others have their low
    // four bits in k2 and their high two above those of k0 and k1.
    const auto front = Isa::template pick_each<1, 1, 2, 2>(out.words);
    const auto back = Isa::template pick_each<3, 3, 3, 3>(out.words);
    const auto field = [](const auto& x, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                          std::uint32_t d) { return Isa::and_i(x, Isa::repeat4_i(a, b, c, d)); };
    const auto high = Isa::or_i(field(front, 0x3f3f3f3f, 0, 0x3f3f3f3f, 0),
                                field(Isa::template shr_i<2>(front), 0, 0x30303030, 0, 0x30303030));
    const auto low = Isa::or_i(field(back, 0, 0x0f0f0f0f, 0, 0),
                               field(Isa::template shr_i<4>(back), 0, 0, 0, 0x0f0f0f0f));
    const auto both = Isa::or_i(high, low);
    const auto scales = Isa::template spread_words<0, 0, 1, 1>(both);
    out.pair_scale[0] = Isa::template byte_of_each<0, 2, 0, 2>(scales);
    out.pair_scale[1] = Isa::template byte_of_each<1, 3, 1, 3>(scales);
    if constexpr (!has_four_sums<Isa>) out.minimum[0] = Isa::widen_high(Isa::bytes(both));
  }
  // The same in 16 bits each: the low bits and the high two meet as a pair of bytes and are added
  // as multiples of 1/4 (scales) and 1/16 of their places.
  template <class Isa>
  [[gnu::always_inline]] static void word_scales(SuperHeader<Isa>& out) {
    static constexpr ByteOrder scale_bytes{4,  0x80, 5,  0x80, 6,  0x80, 7,  0x80,
                                           12, 4,    13, 5,    14, 6,    15, 7};
    static constexpr ByteOrder minimum_bytes{8,  0x80, 9,  0x80, 10, 0x80, 11, 0x80,
                                             12, 8,    13, 9,    14, 10,   15, 11};
    static constexpr ByteOrder scale_bits{0x3f, 0,    0x3f, 0,    0x3f, 0,    0x3f, 0,
                                          0x0f, 0xc0, 0x0f, 0xc0, 0x0f, 0xc0, 0x0f, 0xc0};
    static constexpr ByteOrder minimum_bits{0x3f, 0,    0x3f, 0,    0x3f, 0,    0x3f, 0,
                                            0xf0, 0xc0, 0xf0, 0xc0, 0xf0, 0xc0, 0xf0, 0xc0};
    static constexpr ByteOrder scale_weights{4, 0, 4, 0, 4, 0, 4, 0, 4, 1, 4, 1, 4, 1, 4, 1};
    static constexpr ByteOrder minimum_weights{16, 0, 16, 0, 16, 0, 16, 0, 1, 4, 1, 4, 1, 4, 1, 4};
    const auto front = Isa::bytes(out.words);
    out.scale[0] = Isa::template weigh_pairs<2>(
        Isa::and_b(Isa::shuffle(front, lane_bytes<Isa>(scale_bytes)), lane_bytes<Isa>(scale_bits)),
        lane_bytes<Isa>(scale_weights));
    out.minimum[0] =
        Isa::template weigh_pairs<4>(Isa::and_b(Isa::shuffle(front, lane_bytes<Isa>(minimum_bytes)),
                                                lane_bytes<Isa>(minimum_bits)),
                                     lane_bytes<Isa>(minimum_weights));
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 factors(const typename Isa::I32x16& words) {
    return Isa::half_words(words);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 minimum_factors(
      const typename Isa::I32x16& words) {
    return upper_halves<Isa>(words);
  }
};

struct FormatQ4_K : KQuant8 {
  static constexpr std::size_t block_bytes = sizeof(BlockQ4_K);
  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* block, typename Isa::B64 (&out)[4]) {
    typename Isa::B64 front, back;
    Isa::load_halves(block + offsetof(BlockQ4_K, q), front, back);
    out[0] = Isa::low_nibbles(front);
    out[1] = Isa::low_nibbles(back);
    out[2] = Isa::high_nibbles(front);
    out[3] = Isa::high_nibbles(back);
  }
};

struct FormatQ5_K : KQuant8 {
  static constexpr std::size_t block_bytes = sizeof(BlockQ5_K);
  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* block, typename Isa::B64 (&out)[4]) {
    typename Isa::B64 front, back;
    Isa::load_halves(block + offsetof(BlockQ5_K, q), front, back);
    // Bits 2j and 2j + 1 belong to the sub-blocks of lane j.
    const std::byte* const high = block + offsetof(BlockQ5_K, high);
    const auto front_high = Isa::shift_by_lane(Isa::table_b64(Isa::load_b16(high)));
    const auto back_high = Isa::shift_by_lane(Isa::table_b64(Isa::load_b16(high + 16)));
    out[0] = Isa::or_b(Isa::low_nibbles(front), Isa::template bits_of<-4>(front_high, 16));
    out[1] = Isa::or_b(Isa::low_nibbles(back), Isa::template bits_of<-4>(back_high, 16));
    out[2] = Isa::or_b(Isa::high_nibbles(front), Isa::template bits_of<-3>(front_high, 16));
    out[3] = Isa::or_b(Isa::high_nibbles(back), Isa::template bits_of<-3>(back_high, 16));
  }
};

// Sixteen signed scales; the last half word of the block is d.
struct FormatQ6_K : KQuant16 {
  static constexpr std::size_t block_bytes = sizeof(BlockQ6_K);
  static constexpr bool has_minima = false;
  static constexpr std::int32_t code_offset = 32;
  static constexpr int factor_word = 3;

  template <class Isa>
  [[gnu::always_inline]] static void header(const std::byte* const (&rows)[super_rows],
                                            SuperHeader<Isa>& out) {
    const auto scales = Isa::load_rows(rows, offsetof(BlockQ6_K, scales));
    out.scale[0] = Isa::widen_low(scales);
    out.scale[1] = Isa::widen_high(scales);
    out.words = row_words<Isa>(rows, block_bytes - 16);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 factors(const typename Isa::I32x16& words) {
    return upper_halves<Isa>(words);
  }
  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* block, typename Isa::B64 (&out)[4]) {
    const std::byte* const q = block + offsetof(BlockQ6_K, low);
    const auto high = Isa::load_b64(block + offsetof(BlockQ6_K, high));
    const auto front = Isa::load_pieces(q, q + 64);
    const auto back = Isa::load_pieces(q + 32, q + 96);
    out[0] = Isa::or_b(Isa::low_nibbles(front), Isa::template bits_of<-4>(high, 0x30));
    out[1] = Isa::or_b(Isa::low_nibbles(back), Isa::template bits_of<-2>(high, 0x30));
    out[2] = Isa::or_b(Isa::high_nibbles(front), Isa::template bits_of<0>(high, 0x30));
    out[3] = Isa::or_b(Isa::high_nibbles(back), Isa::template bits_of<2>(high, 0x30));
  }
};

// Sixteen bytes of scales (low nibbles) and minima (high nibbles) first, d and dmin last.
struct FormatQ2_K : KQuant16 {
  static constexpr std::size_t block_bytes = sizeof(BlockQ2_K);
  static constexpr bool has_minima = true;
  static constexpr std::int32_t code_offset = 0;
  static constexpr int factor_word = 3;

  template <class Isa>
  [[gnu::always_inline]] static void header(const std::byte* const (&rows)[super_rows],
                                            SuperHeader<Isa>& out) {
    const auto both = Isa::load_rows(rows, offsetof(BlockQ2_K, scales));
    const auto scales = Isa::low_nibbles(both);
    const auto minima = Isa::high_nibbles(both);
    out.scale[0] = Isa::widen_low(scales);
    out.scale[1] = Isa::widen_high(scales);
    out.minimum[0] = Isa::widen_low(minima);
    out.minimum[1] = Isa::widen_high(minima);
    out.words = row_words<Isa>(rows, block_bytes - 16);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 factors(const typename Isa::I32x16& words) {
    return Isa::half_words(words);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 minimum_factors(
      const typename Isa::I32x16& words) {
    return upper_halves<Isa>(words);
  }
  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* block, typename Isa::B64 (&out)[4]) {
    const auto q = Isa::load_b64(block + offsetof(BlockQ2_K, q));
    out[0] = Isa::template bits_of<0>(q, 3);
    out[1] = Isa::template bits_of<2>(q, 3);
    out[2] = Isa::template bits_of<4>(q, 3);
    out[3] = Isa::template bits_of<6>(q, 3);
  }
};

// Sixteen scales of 6 bits, less 32, in 12 bytes before d; the codes' third bits lie apart.
struct FormatQ3_K : KQuant16 {
  static constexpr std::size_t block_bytes = sizeof(BlockQ3_K);
  static constexpr bool has_minima = false;
  static constexpr std::int32_t code_offset = 4;
  static constexpr int factor_word = 3;

  template <class Isa>
  [[gnu::always_inline]] static void header(const std::byte* const (&rows)[super_rows],
                                            SuperHeader<Isa>& out) {
    const auto end = Isa::load_rows(rows, block_bytes - 16);  // two code bytes, 12 of scales, d
    out.words = Isa::words(end);
    static constexpr ByteOrder low_bytes{2, 3, 4, 5, 6, 7, 8, 9};
    static constexpr ByteOrder high_bytes{10, 11, 12, 13, 10, 11, 12, 13,
                                          10, 11, 12, 13, 10, 11, 12, 13};
    const auto nibbles = Isa::shuffle(end, lane_bytes<Isa>(low_bytes));
    const auto pairs = Isa::words(Isa::shuffle(end, lane_bytes<Isa>(high_bytes)));
    // Word w of a row holds the high bits of its scales 4w .. 4w + 3 at bits 2w of each byte.
    const auto at = [](const auto& x, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                       std::uint32_t d) { return Isa::and_i(x, Isa::repeat4_i(a, b, c, d)); };
    constexpr std::uint32_t two = 0x30303030;
    const auto high = Isa::bytes(Isa::or_i(
        Isa::or_i(at(Isa::template shl_i<4>(pairs), two, 0, 0, 0),
                  at(Isa::template shl_i<2>(pairs), 0, two, 0, 0)),
        Isa::or_i(at(pairs, 0, 0, two, 0), at(Isa::template shr_i<2>(pairs), 0, 0, 0, two))));
    // Scales 0..7 have their low bits in the low nibbles, 8..15 in the high ones.
    out.scale[0] = Isa::add_w(Isa::widen_low(Isa::or_b(Isa::low_nibbles(nibbles), high)), -32);
    out.scale[1] =
        Isa::add_w(Isa::widen_low(Isa::or_b(
                       Isa::high_nibbles(nibbles),
                       Isa::bytes(Isa::template pick_each<2, 3, 2, 3>(Isa::words(high))))),
                   -32);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 factors(const typename Isa::I32x16& words) {
    return upper_halves<Isa>(words);
  }
  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* block, typename Isa::B64 (&out)[4]) {
    const auto q = Isa::load_b64(block + offsetof(BlockQ3_K, q));
    const auto high = Isa::load_and_high(block + offsetof(BlockQ3_K, high));
    out[0] = Isa::or_b(Isa::template bits_of<0>(q, 3), Isa::template bits_of<-2>(high, 4));
    out[1] = Isa::or_b(Isa::template bits_of<2>(q, 3), Isa::template bits_of<-1>(high, 4));
    out[2] = Isa::or_b(Isa::template bits_of<4>(q, 3), Isa::template bits_of<0>(high, 4));
    out[3] = Isa::or_b(Isa::template bits_of<6>(q, 3), Isa::template bits_of<1>(high, 4));
  }
};

}  // namespace
}  // namespace millrace
