// IQ4_XS over an ISA policy. What a super-block format offers to the products: kernels/README.md.
#pragma once

#include "kernels/blocks.h"
#include "kernels/formats/iq4_table-inl.h"
#include "kernels/formats/k_quants-inl.h"
#include "kernels/super_block-inl.h"

namespace millrace {
namespace {

struct FormatIQ4_XS {
  static constexpr std::size_t block_bytes = sizeof(BlockIQ4_XS);
  static constexpr SuperLayout layout = SuperLayout::turns;
  static constexpr bool paired = true;
  static constexpr std::size_t sub_scales = 8;
  template <class Isa>
  static constexpr std::int32_t bias = has_four_sums<Isa> ? 0 : Isa::signed_bias;  // 16-bit sums
  template <class Isa>
  static constexpr bool signed_codes = bias<Isa> == 0;
  static constexpr bool has_minima = false;
  static constexpr std::int32_t code_offset = 0;
  static constexpr int factor_word = 0;

  template <class Isa>
  [[gnu::always_inline]] static void header(const std::byte* const (&rows)[super_rows],
                                            SuperHeader<Isa>& out) {
    const auto front = Isa::load_rows(rows, 0);  // d, high bits, four bytes of nibbles, codes
    out.words = Isa::words(front);
    static constexpr ByteOrder nibble_bytes{4, 4, 5, 5, 6, 6, 7, 7};
    static constexpr ByteOrder high_bytes{2, 2, 2, 2, 3, 3, 3, 3};
    const auto nibbles = Isa::words(Isa::shuffle(front, lane_bytes<Isa>(nibble_bytes)));
    const auto pairs = Isa::words(Isa::shuffle(front, lane_bytes<Isa>(high_bytes)));
    // Byte s of a lane is scale s: the lower nibble for an even s, and bits 2 (s mod 4) of the
    // pairs.
    const auto field = [](const auto& x, std::uint32_t mask) {
      return Isa::and_i(x, Isa::set1_i(static_cast<std::int32_t>(mask)));
    };
    const auto low =
        Isa::or_i(field(nibbles, 0x000f000f), field(Isa::template shr_i<4>(nibbles), 0x0f000f00));
    const auto high = Isa::or_i(
        Isa::or_i(field(Isa::template shl_i<4>(pairs), 0x00000030),
                  field(Isa::template shl_i<2>(pairs), 0x00003000)),
        Isa::or_i(field(pairs, 0x00300000), field(Isa::template shr_i<2>(pairs), 0x30000000)));
    const auto scales = Isa::or_i(low, high);
    const auto less = Isa::set1_i(-32);
    out.pair_scale[0] = Isa::add_i(
        Isa::template byte_of_each<0, 1, 2, 3>(Isa::template spread_words<0, 0, 0, 0>(scales)),
        less);
    out.pair_scale[1] = Isa::add_i(
        Isa::template byte_of_each<0, 1, 2, 3>(Isa::template spread_words<1, 1, 1, 1>(scales)),
        less);
    if constexpr (has_four_sums<Isa>) word_scales<Isa>(front, out);
    else if constexpr (bias<Isa> != 0)
      out.scale[0] = Isa::add_w(Isa::widen_low(Isa::bytes(scales)), -32);
  }
  // The same in 16 bits each: a nibble is brought to bits 10 to 13 by a product, the two bits above
  // it to the top by another.
  template <class Isa>
  [[gnu::always_inline]] static void word_scales(const typename Isa::B64& front,
                                                 SuperHeader<Isa>& out) {
    static constexpr ByteOrder nibble_bytes{4, 0x80, 4, 0x80, 5, 0x80, 5, 0x80,
                                            6, 0x80, 6, 0x80, 7, 0x80, 7, 0x80};
    static constexpr ByteOrder nibble_bits{0x0f, 0, 0xf0, 0, 0x0f, 0, 0xf0, 0,
                                           0x0f, 0, 0xf0, 0, 0x0f, 0, 0xf0, 0};
    static constexpr ByteOrder nibble_weights{0, 4, 0x40, 0, 0, 4, 0x40, 0,
                                              0, 4, 0x40, 0, 0, 4, 0x40, 0};
    static constexpr ByteOrder high_bytes{2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3, 2, 3};
    static constexpr ByteOrder high_weights{0,    0x40, 0,    0x10, 0, 4, 0, 1,
                                            0x40, 0,    0x10, 0,    4, 0, 1, 0};
    static constexpr ByteOrder high_bits{0, 0xc0, 0, 0xc0, 0, 0xc0, 0, 0xc0,
                                         0, 0xc0, 0, 0xc0, 0, 0xc0, 0, 0xc0};
    const auto nibbles = Isa::and_b(Isa::shuffle(front, lane_bytes<Isa>(nibble_bytes)),
                                    lane_bytes<Isa>(nibble_bits));
    const auto high = Isa::shuffle(front, lane_bytes<Isa>(high_bytes));
    const auto six = Isa::or_b(
        Isa::mul_w(nibbles, lane_bytes<Isa>(nibble_weights)),
        Isa::and_b(Isa::mul_w(high, lane_bytes<Isa>(high_weights)), lane_bytes<Isa>(high_bits)));
    out.scale[0] = Isa::add_w(Isa::template shr_w<10>(six), -32);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 factors(const typename Isa::I32x16& words) {
    return Isa::half_words(words);
  }
  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* block, typename Isa::B64 (&out)[4]) {
    const auto table = Isa::table_b64(Isa::load_b16(iq4_table<bias<Isa>>.bytes));
    for (std::size_t i = 0; i < 2; ++i) {
      const auto q = Isa::load_b64(block + offsetof(BlockIQ4_XS, q) + 64 * i);
      out[2 * i] = Isa::lookup16(table, Isa::low_nibbles(q));
      out[2 * i + 1] = Isa::lookup16(table, Isa::high_nibbles(q));
    }
  }
};

}  // namespace
}  // namespace millrace
