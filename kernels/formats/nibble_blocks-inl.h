// Q4_0, Q4_1, Q5_0, Q5_1 and IQ4_NL over an ISA policy: nibbles around a centre, with a minimum, a
// fifth bit, or a code table. What a block format offers to the products: kernels/README.md.
#pragma once

#include <cstring>

#include "kernels/blocks.h"
#include "kernels/formats/four_blocks-inl.h"
#include "kernels/formats/iq4_table-inl.h"

namespace millrace {
namespace {

template <class Isa>
[[gnu::always_inline]] inline typename Isa::F32x16 half_at(const std::byte* p) {
  std::uint16_t half;
  std::memcpy(&half, p, sizeof half);
  return Isa::set1(Isa::half_to_float(half));
}

// Unsigned codes of 5 bits at most, in nibbles and, with `fifth_bit`, one more bit each.
template <class Block, bool fifth_bit>
struct NibbleBlocks {
  static constexpr std::size_t block_bytes = sizeof(Block);
  static constexpr std::uint8_t fifth = 16;
  static constexpr unsigned largest = fifth_bit ? 31 : 15;
  static constexpr bool slow_codes = fifth_bit;

  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* quad, typename Isa::B64& lo,
                                           typename Isa::B64& hi) {
    codes_of<Isa>(BlocksOfRow<Isa, block_bytes>{quad}, lo, hi);
  }
  template <class Isa, class Blocks>
  [[gnu::always_inline]] static void codes_of(const Blocks& blocks, typename Isa::B64& lo,
                                              typename Isa::B64& hi) {
    const auto q = blocks.load(offsetof(Block, q));
    lo = Isa::low_nibbles(q);
    hi = Isa::high_nibbles(q);
    if constexpr (fifth_bit) {
      const auto high = blocks.load(offsetof(Block, high));
      lo = Isa::template add_where_bits<0>(lo, high, fifth);
      hi = Isa::template add_where_bits<2>(hi, high, fifth);
    }
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::I32x16 dot(const typename Isa::B64& lo,
                                                         const typename Isa::B64& a_lo,
                                                         const typename Isa::B64& hi,
                                                         const typename Isa::B64& a_hi) {
    return Isa::dot_u(lo, a_lo, hi, a_hi);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 scales(const std::byte* group) {
    return Isa::template gather_f16<block_bytes>(group);
  }

  static constexpr std::size_t step_vectors = 2;
  static constexpr std::size_t step_bytes = block_bytes;
  template <class Isa>
  [[gnu::always_inline]] static void decode_codes(const std::byte* block,
                                                  typename Isa::F32x16 (&out)[step_vectors]) {
    const auto q = Isa::load_b16(block + offsetof(Block, q));
    auto lo = Isa::low_nibbles(q);
    auto hi = Isa::high_nibbles(q);
    if constexpr (fifth_bit) {
      const auto high = Isa::load_b16(block + offsetof(Block, high));
      lo = Isa::template add_where_bits<0>(lo, high, fifth);
      hi = Isa::template add_where_bits<2>(hi, high, fifth);
    }
    out[0] = Isa::i8_to_f32(lo);
    out[1] = Isa::i8_to_f32(hi);
  }
};

// Codes around a centre: value = scale * (code - centre).
template <class Block, bool fifth_bit, int centre>
struct CentredBlocks : NibbleBlocks<Block, fifth_bit> {
  using Base = NibbleBlocks<Block, fifth_bit>;
  template <class Isa>
  static constexpr std::int32_t offset = centre;
  template <class Isa>
  [[gnu::always_inline]] static void decode(const std::byte* block,
                                            typename Isa::F32x16 (&out)[2]) {
    Base::template decode_codes<Isa>(block, out);
    const auto scale = half_at<Isa>(block);
    for (auto& x : out) x = Isa::mul(scale, Isa::sub(x, Isa::set1(static_cast<float>(centre))));
  }
};
using FormatQ4_0 = CentredBlocks<BlockQ4_0, false, 8>;
using FormatQ5_0 = CentredBlocks<BlockQ5_0, true, 16>;

// With a minimum m: its products with the activations' sums go into accumulators of their own.
template <class Block, bool fifth_bit>
struct MinimumBlocks : NibbleBlocks<Block, fifth_bit> {
  using Base = NibbleBlocks<Block, fifth_bit>;
  template <class Isa>
  static constexpr std::int32_t offset = 0;
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 minima(const std::byte* group) {
    return Isa::template gather_f16<sizeof(Block)>(group + offsetof(Block, m));
  }
  template <class Isa>
  [[gnu::always_inline]] static void decode(const std::byte* block,
                                            typename Isa::F32x16 (&out)[2]) {
    Base::template decode_codes<Isa>(block, out);
    const auto scale = half_at<Isa>(block);
    const auto minimum = half_at<Isa>(block + offsetof(Block, m));
    for (auto& x : out) x = Isa::add(Isa::mul(scale, x), minimum);  // the product is exact
  }
};
using FormatQ4_1 = MinimumBlocks<BlockQ4_1, false>;
using FormatQ5_1 = MinimumBlocks<BlockQ5_1, true>;

struct FormatIQ4_NL {
  static constexpr std::size_t block_bytes = sizeof(BlockIQ4_NL);
  static constexpr std::size_t nibbles = offsetof(BlockIQ4_NL, q);  // all that codes are made of

  template <class Isa>
  static constexpr std::int32_t offset = Isa::signed_bias;
  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* quad, typename Isa::B64& lo,
                                           typename Isa::B64& hi) {
    codes_of<Isa>(BlocksOfRow<Isa, block_bytes>{quad}, lo, hi);
  }
  template <class Isa, class Blocks>
  [[gnu::always_inline]] static void codes_of(const Blocks& blocks, typename Isa::B64& lo,
                                              typename Isa::B64& hi) {
    const auto table = Isa::table_b64(Isa::load_b16(iq4_table<Isa::signed_bias>.bytes));
    const auto q = blocks.load(offsetof(BlockIQ4_NL, q));
    lo = Isa::lookup16(table, Isa::low_nibbles(q));
    hi = Isa::lookup16(table, Isa::high_nibbles(q));
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::I32x16 dot(const typename Isa::B64& lo,
                                                         const typename Isa::B64& a_lo,
                                                         const typename Isa::B64& hi,
                                                         const typename Isa::B64& a_hi) {
    return Isa::dot_biased(lo, a_lo, hi, a_hi);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 scales(const std::byte* group) {
    return Isa::template gather_f16<block_bytes>(group);
  }

  static constexpr std::size_t step_vectors = 2;
  static constexpr std::size_t step_bytes = block_bytes;
  template <class Isa>
  [[gnu::always_inline]] static void decode(const std::byte* block,
                                            typename Isa::F32x16 (&out)[step_vectors]) {
    const auto scale = half_at<Isa>(block);
    const auto table = Isa::load_b16(iq4_table<0>.bytes);
    const auto q = Isa::load_b16(block + offsetof(BlockIQ4_NL, q));
    out[0] = Isa::mul(scale, Isa::i8_to_f32(Isa::lookup16(table, Isa::low_nibbles(q))));
    out[1] = Isa::mul(scale, Isa::i8_to_f32(Isa::lookup16(table, Isa::high_nibbles(q))));
  }
};

}  // namespace
}  // namespace millrace
