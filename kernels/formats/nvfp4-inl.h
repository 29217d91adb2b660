// NVFP4 over an ISA policy: a scale for every 16 values, so it has products of its own
// (matmul_nvfp4-inl.h). A group is four blocks: 256 values, 16 scales.
#pragma once

#include <cstring>

#include "kernels/blocks.h"
#include "kernels/formats/mxfp4-inl.h"

namespace millrace {
namespace {

struct FormatNvfp4 {
  static constexpr std::size_t block_bytes = sizeof(BlockNvfp4);
  static constexpr std::size_t group_bytes = 4 * block_bytes;
  static constexpr bool slow_codes = true;

  // The scale block in lane i of a group's sums: reduce_quads() leaves lane j of code vector v in
  // lane 4j + v.
  static constexpr std::size_t scale_block(std::size_t lane) {
    const std::size_t v = lane % 4;
    return 8 * (v / 2) + 2 * (lane / 4) + v % 2;
  }
  struct Order {
    std::byte at[16];
    constexpr Order() : at{} {
      for (std::size_t i = 0; i < 16; ++i) at[i] = static_cast<std::byte>(scale_block(i));
    }
  };

  // Lane j of vector v: scale block 8 (v / 2) + 2j + v % 2.
  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* group, typename Isa::B64 (&out)[4]) {
    const auto table = Isa::table_b64(Isa::load_b16(mxfp4_signed.bytes));
    for (std::size_t i = 0; i < 2; ++i) {
      const std::byte* const q = group + 2 * i * block_bytes + offsetof(BlockNvfp4, q);
      const auto nibbles = Isa::load_pieces(q, q + block_bytes);
      const auto low = Isa::lookup16(table, Isa::low_nibbles(nibbles));
      const auto high = Isa::lookup16(table, Isa::high_nibbles(nibbles));
      out[2 * i] = Isa::low_halves(low, high);
      out[2 * i + 1] = Isa::high_halves(low, high);
    }
  }

  // Half the values of 8-bit scales, exact: the bits of an E4M3 number moved into a float32 stand
  // for 2^-120 times it, denormals too.
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 half_scales(typename Isa::B16 bytes) {
    const auto bits = Isa::and_i(Isa::u8_to_i32(bytes), Isa::set1_i(0x7f));
    const auto value = Isa::mul(Isa::from_bits(Isa::template shl_i<20>(bits)), Isa::set1(0x1p119f));
    return Isa::select(Isa::equal_i(bits, Isa::set1_i(0x7f)), Isa::zero(), value);
  }
  // In the order of a group's sums.
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 scales(const std::byte* group) {
    static constexpr Order order;
    std::byte bytes[16];
    for (std::size_t i = 0; i < 4; ++i) std::memcpy(bytes + 4 * i, group + i * block_bytes, 4);
    return half_scales<Isa>(Isa::lookup16(Isa::load_b16(bytes), Isa::load_b16(order.at)));
  }

  static constexpr std::size_t step_vectors = 4;
  static constexpr std::size_t step_bytes = block_bytes;
  template <class Isa>
  [[gnu::always_inline]] static void decode(const std::byte* block,
                                            typename Isa::F32x16 (&out)[step_vectors]) {
    const auto table = Isa::load_b16(mxfp4_signed.bytes);
    std::byte bytes[16] = {};
    std::memcpy(bytes, block, 4);
    alignas(64) float scale[16];
    Isa::store(scale, half_scales<Isa>(Isa::load_b16(bytes)));
    for (std::size_t i = 0; i < 2; ++i) {
      const auto q = Isa::load_b16(block + offsetof(BlockNvfp4, q) + 16 * i);
      const auto low = Isa::lookup16(table, Isa::low_nibbles(q));
      const auto high = Isa::lookup16(table, Isa::high_nibbles(q));
      out[2 * i] = Isa::mul(Isa::set1(scale[2 * i]), Isa::i8_to_f32(Isa::low_halves(low, high)));
      out[2 * i + 1] =
          Isa::mul(Isa::set1(scale[2 * i + 1]), Isa::i8_to_f32(Isa::high_halves(low, high)));
    }
  }
};

}  // namespace
}  // namespace millrace
