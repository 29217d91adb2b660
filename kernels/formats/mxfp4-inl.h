// MXFP4 over an ISA policy. What a block format offers to the products: kernels/README.md.
#pragma once

#include "kernels/blocks.h"
#include "kernels/formats/four_blocks-inl.h"

namespace millrace {
namespace {

// The code of each nibble, plus `add`, as bytes.
struct Mxfp4Table {
  std::byte bytes[16];
  constexpr explicit Mxfp4Table(int add) : bytes{} {
    for (int i = 0; i < 16; ++i) bytes[i] = static_cast<std::byte>(mxfp4_codes[i] + add);
  }
};
constexpr Mxfp4Table mxfp4_signed{0};
constexpr Mxfp4Table mxfp4_unsigned{mxfp4_code_offset};

struct FormatMxfp4 {
  static constexpr std::size_t block_bytes = sizeof(BlockMxfp4);
  static constexpr unsigned largest = 2 * mxfp4_code_offset;
  static constexpr std::size_t nibbles = offsetof(BlockMxfp4, q);  // all that codes are made of

  template <class Isa>
  static constexpr std::int32_t offset = mxfp4_code_offset;

  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* quad, typename Isa::B64& lo,
                                           typename Isa::B64& hi) {
    codes_of<Isa>(BlocksOfRow<Isa, block_bytes>{quad}, lo, hi);
  }
  template <class Isa, class Blocks>
  [[gnu::always_inline]] static void codes_of(const Blocks& blocks, typename Isa::B64& lo,
                                              typename Isa::B64& hi) {
    const auto table = Isa::table_b64(Isa::load_b16(mxfp4_unsigned.bytes));
    const auto q = blocks.load(offsetof(BlockMxfp4, q));
    lo = Isa::lookup16(table, Isa::low_nibbles(q));
    hi = Isa::lookup16(table, Isa::high_nibbles(q));
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::I32x16 dot(const typename Isa::B64& lo,
                                                         const typename Isa::B64& a_lo,
                                                         const typename Isa::B64& hi,
                                                         const typename Isa::B64& a_hi) {
    return Isa::dot_u(lo, a_lo, hi, a_hi);
  }
  // 2^(e - 128), subnormal for e < 2: the larger of two bit patterns, each right on its side.
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 scales(const std::byte* group) {
    if constexpr (requires { Isa::gather_powers(group); }) {
      return Isa::gather_powers(group);
    } else {
      const auto e = Isa::template gather_u8<block_bytes>(group);
      const auto normal = Isa::template shl_i<23>(Isa::sub_i(e, Isa::set1_i(1)));
      const auto subnormal = Isa::template shl_i<21>(Isa::add_i(e, Isa::set1_i(1)));
      return Isa::from_bits(Isa::max_i(normal, subnormal));
    }
  }

  static constexpr std::size_t step_vectors = 2;
  static constexpr std::size_t step_bytes = block_bytes;
  template <class Isa>
  [[gnu::always_inline]] static void decode(const std::byte* block,
                                            typename Isa::F32x16 (&out)[step_vectors]) {
    const auto e = std::to_integer<std::uint32_t>(block[0]);
    const std::uint32_t bits = e < 2 ? (e + 1) << 21 : (e - 1) << 23;
    const auto scale = Isa::set1(__builtin_bit_cast(float, bits));
    const auto table = Isa::load_b16(mxfp4_signed.bytes);
    const auto q = Isa::load_b16(block + offsetof(BlockMxfp4, q));
    out[0] = Isa::mul(scale, Isa::i8_to_f32(Isa::lookup16(table, Isa::low_nibbles(q))));
    out[1] = Isa::mul(scale, Isa::i8_to_f32(Isa::lookup16(table, Isa::high_nibbles(q))));
  }
};

}  // namespace
}  // namespace millrace
