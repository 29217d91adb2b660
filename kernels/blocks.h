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
