// Weights, activations and expectations for the tests of the weight products.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "kernels/kernel_table.h"
#include "kernels/reference.h"
#include "tests/kernels/values.h"

namespace millrace::testing {

inline constexpr std::array block_types = {DType::q8_0, DType::q4_0, DType::mxfp4, DType::q4_1,
                                           DType::q5_0, DType::q5_1, DType::iq4_nl};
inline constexpr std::array float_types = {DType::f32, DType::f16, DType::bf16};

inline std::size_t id_of(DType type) { return static_cast<std::size_t>(type); }

// What the scales (of floats: the elements) of the weights look like.
enum class Scales { ordinary, denormal, extreme };  // extreme: also 0, infinity, NaN, largest

inline std::uint16_t half_bits(Random& random, Scales scales) {
  const auto bits = random.bits();
  const auto sign = static_cast<std::uint16_t>(bits & 0x8000u);
  const auto mantissa = static_cast<std::uint16_t>(bits >> 16 & 0x3ffu);
  if (scales == Scales::denormal) return static_cast<std::uint16_t>(sign | mantissa);
  if (scales == Scales::extreme) {
    constexpr std::uint16_t special[] = {0, 0x7c00, 0x7e01, 0x7d00, 0x7bff, 1, 0x3c00, 0x0400};
    return static_cast<std::uint16_t>(sign | special[bits >> 32 & 7]);
  }
  const auto exponent = static_cast<std::uint16_t>(8 + (bits >> 40 & 7));
  return static_cast<std::uint16_t>(sign | exponent << 10 | mantissa);
}

inline std::uint8_t mxfp4_exponent(Random& random, Scales scales) {
  const auto bits = random.bits();
  if (scales == Scales::denormal) return static_cast<std::uint8_t>(bits % 4);
  constexpr std::uint8_t special[] = {0, 1, 2, 3, 127, 253, 254, 255};
  if (scales == Scales::extreme) return special[bits & 7];
  return static_cast<std::uint8_t>(118 + bits % 8);
}

inline float any_float(Random& random, Scales scales) {
  const auto bits = static_cast<std::uint32_t>(random.bits());
  constexpr std::uint32_t special[] = {0,          0x80000000, 0x7f800000, 0xff800000,
                                       0x7fc00000, 0x7f800001, 0x7f7fffff, 1};
  if (scales == Scales::denormal) return std::bit_cast<float>(bits & 0x807fffffu);
  if (scales == Scales::extreme && bits % 4 == 0) {
    return std::bit_cast<float>(special[bits >> 8 & 7]);
  }
  return static_cast<float>(random.uniform(-2, 2));
}

// Bytes of scales and minima at the start of a block of 32.
inline std::size_t header_bytes(DType type) {
  if (type == DType::mxfp4) return 1;
  return type == DType::q4_1 || type == DType::q5_1 ? 4 : 2;
}

// One element or block of random weights.
inline void fill_unit(DType type, std::byte* p, Random& random, Scales scales) {
  const auto put = [&p](auto value) {
    std::memcpy(p, &value, sizeof value);
    p += sizeof value;
  };
  const std::byte* const end = p + dtype_info(type).block_bytes;
  switch (type) {
    case DType::f32:
      put(any_float(random, scales));
      return;
    case DType::f16:
      put(half_bits(random, scales));
      return;
    case DType::bf16:
      put(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(any_float(random, scales)) >>
                                     16));
      return;
    case DType::mxfp4:
      put(mxfp4_exponent(random, scales));
      break;
    default:
      for (std::size_t i = 0; i < header_bytes(type); i += 2) put(half_bits(random, scales));
  }
  while (p != end) put(static_cast<std::uint8_t>(random.bits() >> 20));
}

// Random weights whose last byte is the last readable one.
struct Weights {
  DType type;
  std::size_t rows;
  std::size_t columns;
  std::size_t row_bytes;
  GuardedArray<std::byte> bytes;

  Weights(DType type_, std::size_t rows_, std::size_t columns_, Scales scales, std::uint64_t seed)
      : type(type_),
        rows(rows_),
        columns(columns_),
        row_bytes(dtype_row_bytes(type_, columns_)),
        bytes(rows_ * row_bytes) {
    Random random(seed);
    const std::size_t unit = dtype_info(type).block_bytes;
    for (std::size_t at = 0; at < rows * row_bytes; at += unit)
      fill_unit(type, bytes.data() + at, random, scales);
  }
  WeightRows view() { return {bytes.data(), row_bytes, rows, columns}; }
  const std::byte* row(std::size_t r) { return bytes.data() + r * row_bytes; }
};

// Activations of several tokens, quantized by the reference.
struct Activations {
  std::size_t tokens;
  std::size_t stride;
  std::size_t blocks;
  std::vector<std::int8_t> q;
  std::vector<float> scale;
  std::vector<std::int32_t> sum;

  Activations(const std::vector<float>& x, std::size_t tokens_, std::size_t columns)
      : tokens(tokens_),
        stride(q8_stride(columns)),
        blocks(stride / 32),
        q(tokens_ * stride),
        scale(tokens_ * blocks),
        sum(tokens_ * blocks) {
    for (std::size_t t = 0; t < tokens; ++t) {
      MILLRACE_CHECK(reference::quantize_q8(x.data() + t * columns, columns, q.data() + t * stride,
                                            scale.data() + t * blocks, sum.data() + t * blocks));
    }
  }
  Q8Batch view() const { return {q.data(), scale.data(), sum.data(), stride, blocks}; }
};

}  // namespace millrace::testing
