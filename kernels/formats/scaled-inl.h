// Types whose scales lie apart from their codes, over an ISA policy: FP8 (E4M3) with a scale per
// tile of 128 x 128, and FP4 (E2M1) packed two in a byte with a scale per 32. A step is 16
// elements.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/formats/mxfp4-inl.h"
#include "kernels/kernel_table.h"

namespace millrace {
namespace {

constexpr std::uint32_t quiet_nan_bits = 0x7fc00000;

// Scale `index` of a row of scales.
[[gnu::always_inline]] inline float scale_value(ScaleType type, const std::byte* scales,
                                                std::size_t index) {
  std::uint32_t bits = 0;
  if (type == ScaleType::f32) {
    std::memcpy(&bits, scales + 4 * index, 4);
  } else if (type == ScaleType::bf16) {
    std::uint16_t half;
    std::memcpy(&half, scales + 2 * index, 2);
    bits = static_cast<std::uint32_t>(half) << 16;
  } else {
    const auto e = std::to_integer<std::uint32_t>(scales[index]);
    bits = e == 0 ? 0x400000u : e == 255 ? quiet_nan_bits : e << 23;
  }
  return __builtin_bit_cast(float, bits);
}

[[gnu::always_inline]] inline const std::byte* scale_row(const WeightRows& weights, std::size_t row,
                                                         std::size_t tile_rows) {
  return weights.scales + (weights.tile_row + row) / tile_rows * weights.scale_row_bytes;
}

struct FormatFp8 {
  static constexpr std::size_t tile_rows = 128;
  static constexpr std::size_t tile_columns = 128;
  static constexpr std::size_t step_bytes = 16;

  static float scale(ScaleType type, const std::byte* scales, std::size_t index) {
    return scale_value(type, scales, index);
  }
  // The bits of an E4M3 number moved into a float32 stand for 2^-120 times it, denormals too.
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 values(const std::byte* p) {
    const auto bytes = Isa::u8_to_i32(Isa::load_b16(p));
    const auto magnitude = Isa::and_i(bytes, Isa::set1_i(0x7f));
    const auto sign = Isa::template shl_i<24>(Isa::and_i(bytes, Isa::set1_i(0x80)));
    const auto value =
        Isa::mul(Isa::from_bits(Isa::template shl_i<20>(magnitude)), Isa::set1(0x1p120f));
    const auto nan = Isa::set1(__builtin_bit_cast(float, quiet_nan_bits));
    return Isa::select(Isa::equal_i(magnitude, Isa::set1_i(0x7f)), nan,
                       Isa::from_bits(Isa::or_i(Isa::bits(value), sign)));
  }
};

// Orders of 16 bytes, for lookups.
struct Fp4Order {
  std::byte at[16];
  constexpr explicit Fp4Order(bool zip) : at{} {
    for (std::size_t i = 0; i < 16; ++i)
      at[i] = static_cast<std::byte>(zip ? i / 2 + i % 2 * 8 : i % 4 * 4 + i / 4);
  }
};
constexpr Fp4Order fp4_zip{true};     // [a0 .. a7 b0 .. b7] becomes a0 b0 a1 b1 …
constexpr Fp4Order fp4_group{false};  // group order

struct FormatFp4 {
  static constexpr std::size_t tile_rows = 1;
  static constexpr std::size_t tile_columns = 32;
  static constexpr std::size_t step_bytes = 8;
  static constexpr std::size_t block_bytes = 16;
  static constexpr bool slow_codes = true;

  // Twice a number's value is its code, so that the scale is halved: exact, denormals too.
  static float scale(ScaleType, const std::byte* scales, std::size_t index) {
    const auto e = std::to_integer<std::uint32_t>(scales[index]);
    const std::uint32_t bits = e == 255 ? quiet_nan_bits : e < 2 ? (e + 1) << 21 : (e - 1) << 23;
    return __builtin_bit_cast(float, bits);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 values(const std::byte* p) {
    std::byte padded[16] = {};
    std::memcpy(padded, p, step_bytes);
    const auto q = Isa::load_b16(padded);
    const auto in_order = Isa::lookup16(Isa::low_halves(Isa::low_nibbles(q), Isa::high_nibbles(q)),
                                        Isa::load_b16(fp4_zip.at));
    return Isa::i8_to_f32(Isa::lookup16(Isa::load_b16(mxfp4_signed.bytes), in_order));
  }

  // What matmul_q8-inl.h asks of a format.
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
    const auto order = Isa::table_b64(Isa::load_b16(fp4_zip.at));
    const auto q = blocks.load(0);
    const auto even = Isa::lookup16(table, Isa::low_nibbles(q));
    const auto odd = Isa::lookup16(table, Isa::high_nibbles(q));
    lo = Isa::lookup16(Isa::low_halves(even, odd), order);
    hi = Isa::lookup16(Isa::high_halves(even, odd), order);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::I32x16 dot(const typename Isa::B64& lo,
                                                         const typename Isa::B64& a_lo,
                                                         const typename Isa::B64& hi,
                                                         const typename Isa::B64& a_hi) {
    return Isa::dot_u(lo, a_lo, hi, a_hi);
  }

  // Of 16 blocks, in group order.
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 scales(const std::byte* group) {
    const auto e = Isa::u8_to_i32(Isa::lookup16(Isa::load_b16(group), Isa::load_b16(fp4_group.at)));
    const auto normal = Isa::template shl_i<23>(Isa::sub_i(e, Isa::set1_i(1)));
    const auto subnormal = Isa::template shl_i<21>(Isa::add_i(e, Isa::set1_i(1)));
    const auto nan = Isa::set1(__builtin_bit_cast(float, quiet_nan_bits));
    return Isa::select(Isa::equal_i(e, Isa::set1_i(255)), nan,
                       Isa::from_bits(Isa::max_i(normal, subnormal)));
  }
};

}  // namespace
}  // namespace millrace
