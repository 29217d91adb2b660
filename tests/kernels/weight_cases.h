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
inline constexpr std::array super_types = {
    DType::q4_k,   DType::q5_k,    DType::q6_k,   DType::q2_k,  DType::q3_k,
    DType::iq4_xs, DType::iq2_xxs, DType::iq2_xs, DType::iq2_s, DType::iq3_xxs,
    DType::iq3_s,  DType::iq1_s,   DType::iq1_m};
inline constexpr std::array float_types = {DType::f32, DType::f16, DType::bf16};

// All types that meet rounded activations.
inline std::vector<DType> quantized_types() {
  std::vector<DType> types(block_types.begin(), block_types.end());
  types.push_back(DType::nvfp4);
  types.insert(types.end(), super_types.begin(), super_types.end());
  return types;
}
inline bool is_super(DType type) { return dtype_info(type).block_elems == 256; }
// Columns of that many blocks of activations; fewer of super-blocks, to keep the tests short.
inline std::size_t columns_of(DType type, std::size_t blocks) {
  if (type == DType::nvfp4) return 64 * ((blocks + 1) / 2);
  return is_super(type) ? 256 * ((blocks + 1) / 2) : 32 * blocks;
}

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

// Where a block has its halves: d, and dmin or m behind it.
struct HalfFields {
  std::size_t offset;
  std::size_t count;
};
inline HalfFields half_fields(DType type) {
  switch (type) {
    case DType::mxfp4:
    case DType::nvfp4:
    case DType::iq1_m:
      return {0, 0};
    case DType::q4_1:
    case DType::q5_1:
    case DType::q4_k:
    case DType::q5_k:
      return {0, 2};
    case DType::q2_k:
      return {80, 2};
    case DType::q3_k:
      return {108, 1};
    case DType::q6_k:
      return {208, 1};
    default:
      return {0, 1};
  }
}
// IQ1_M has d in the top nibbles of its last four 16-bit words.
inline void spread_half(std::byte* block, std::uint16_t half) {
  for (std::size_t i = 0; i < 4; ++i) {
    std::byte& top = block[49 + 2 * i];
    top = (top & std::byte{15}) | static_cast<std::byte>((half >> 4 * i & 15) << 4);
  }
}

// Whether a byte of a block belongs to a scale in floating point.
inline bool is_scale_byte(DType type, std::size_t at) {
  if (type == DType::mxfp4) return at == 0;
  if (type == DType::nvfp4) return at < 4;
  if (type == DType::iq1_m) return at >= 48;
  const HalfFields fields = half_fields(type);
  return at >= fields.offset && at < fields.offset + 2 * fields.count;
}

// One element or block of random weights.
inline void fill_unit(DType type, std::byte* p, Random& random, Scales scales) {
  const auto put = [](std::byte* at, auto value) { std::memcpy(at, &value, sizeof value); };
  switch (type) {
    case DType::f32:
      return put(p, any_float(random, scales));
    case DType::f16:
      return put(p, half_bits(random, scales));
    case DType::bf16:
      return put(p, static_cast<std::uint16_t>(
                        std::bit_cast<std::uint32_t>(any_float(random, scales)) >> 16));
    default:
      break;
  }
  for (std::size_t i = 0; i < dtype_info(type).block_bytes; ++i)
    p[i] = static_cast<std::byte>(random.bits() >> 20);
  if (type == DType::mxfp4) p[0] = static_cast<std::byte>(mxfp4_exponent(random, scales));
  if (type == DType::iq1_m) spread_half(p, half_bits(random, scales));
  const HalfFields fields = half_fields(type);
  for (std::size_t i = 0; i < fields.count; ++i)
    put(p + fields.offset + 2 * i, half_bits(random, scales));
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

// Activations of several tokens, quantized by the reference as the type of the weights wants it.
struct Activations {
  std::size_t tokens;
  std::size_t block;  // values of one scale
  std::size_t stride;
  std::size_t blocks;
  std::vector<std::int8_t> q;
  std::vector<float> scale;
  std::vector<std::int32_t> sum;
  std::vector<std::int16_t> unit_sum;  // of super-blocks

  Activations(DType type, const std::vector<float>& x, std::size_t tokens_, std::size_t columns)
      : tokens(tokens_),
        block(is_super(type) ? 256 : 32),
        stride(is_super(type) ? q8_super_stride(columns) : q8_stride(columns)),
        blocks(stride / block),
        q(tokens_ * stride),
        scale(tokens_ * blocks),
        sum(tokens_ * stride / 32),
        unit_sum(tokens_ * stride / 16) {
    for (std::size_t t = 0; t < tokens; ++t) {
      const float* from = x.data() + t * columns;
      std::int8_t* const to = q.data() + t * stride;
      float* const scales = scale.data() + t * blocks;
      MILLRACE_CHECK(
          block == 32 ? reference::quantize_q8(from, columns, to, scales, sum.data() + t * blocks)
                      : reference::quantize_q8_super(from, columns, to, scales,
                                                     unit_sum.data() + t * stride / 16));
    }
  }
  Q8Batch view() const { return {q.data(), scale.data(), sum.data(), stride, blocks}; }
  Q8SuperBatch super_view() const {
    return {q.data(), scale.data(), unit_sum.data(), stride, blocks};
  }
};

// The product that the type's weights take; `q` stands for x's own if given.
inline void multiply_q8(const KernelTable& table, DType type, const WeightRows& weights,
                        const Activations& x, std::size_t tokens, float* y, std::size_t y_stride,
                        const std::int8_t* q = nullptr) {
  if (x.block == 256) {
    Q8SuperBatch batch = x.super_view();
    if (q != nullptr) batch.q = q;
    return table.matmul_q8_super[id_of(type)](weights, batch, tokens, y, y_stride);
  }
  Q8Batch batch = x.view();
  if (q != nullptr) batch.q = q;
  table.matmul_q8[id_of(type)](weights, batch, tokens, y, y_stride);
}

}  // namespace millrace::testing
