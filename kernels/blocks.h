// Quantized blocks as they lie in a file: little-endian, packed, no alignment. Kernels read fields
// at these offsets through memcpy or vector loads; nothing is ever cast to these structs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {

// x[j] = d * q[j]
struct BlockQ8_0 {
  std::uint16_t d;  // f16
  std::int8_t q[32];
};
static_assert(sizeof(BlockQ8_0) == 34 && offsetof(BlockQ8_0, q) == 2);

// x[j] = d * (low nibble of q[j] - 8), x[j + 16] = d * (high nibble of q[j] - 8)
struct BlockQ4_0 {
  std::uint16_t d;  // f16
  std::uint8_t q[16];
};
static_assert(sizeof(BlockQ4_0) == 18 && offsetof(BlockQ4_0, q) == 2);

// x[j] = d * low nibble of q[j] + m, x[j + 16] = d * high nibble of q[j] + m
struct BlockQ4_1 {
  std::uint16_t d;  // f16
  std::uint16_t m;  // f16
  std::uint8_t q[16];
};
static_assert(sizeof(BlockQ4_1) == 20 && offsetof(BlockQ4_1, q) == 4);

// Nibbles as in Q4_0; bit i of `high` is the fifth bit of code i. x = d * (code - 16)
struct BlockQ5_0 {
  std::uint16_t d;  // f16
  std::uint8_t high[4];
  std::uint8_t q[16];
};
static_assert(sizeof(BlockQ5_0) == 22 && offsetof(BlockQ5_0, q) == 6);

// Codes as in Q5_0. x = d * code + m
struct BlockQ5_1 {
  std::uint16_t d;  // f16
  std::uint16_t m;  // f16
  std::uint8_t high[4];
  std::uint8_t q[16];
};
static_assert(sizeof(BlockQ5_1) == 24 && offsetof(BlockQ5_1, q) == 8);

// x = d * iq4_codes[nibble], nibbles as in Q4_0
struct BlockIQ4_NL {
  std::uint16_t d;  // f16
  std::uint8_t q[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18 && offsetof(BlockIQ4_NL, q) == 2);

inline constexpr std::int8_t iq4_codes[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                              1,    13,   25,  38,  53,  69,  89,  113};

// x = 2^(e - 128) * code[nibble], nibbles as in Q4_0; the codes are twice the E2M1 values, so that
// they are integers. e = 255 has no special meaning.
struct BlockMxfp4 {
  std::uint8_t e;
  std::uint8_t q[16];
};
static_assert(sizeof(BlockMxfp4) == 17 && offsetof(BlockMxfp4, q) == 1);

inline constexpr std::int8_t mxfp4_codes[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                                0, -1, -2, -3, -4, -6, -8, -12};
inline constexpr int mxfp4_code_offset = 12;  // codes + offset are unsigned

}  // namespace millrace
