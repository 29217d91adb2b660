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

// Four sub-blocks s of 16 values, 8 bytes each: byte 8s + j has elements 16s + j (low nibble) and
// 16s + j + 8. x = scale(d[s]) / 2 * mxfp4 code; a scale has 4 exponent and 3 mantissa bits (bias
// 7, the sign bit is ignored), 0x7f counts as 0.
struct BlockNvfp4 {
  std::uint8_t d[4];
  std::uint8_t q[32];
};
static_assert(sizeof(BlockNvfp4) == 36 && offsetof(BlockNvfp4, q) == 4);

// --- super-blocks of 256 values ---

// s = i / 16, byte 32 (i / 128) + i % 32 of q at bits 2 (i % 128 / 32):
// x = d * (low nibble of scales[s]) * code - dmin * (high nibble of scales[s])
struct BlockQ2_K {
  std::uint8_t scales[16];
  std::uint8_t q[64];
  std::uint16_t d;     // f16
  std::uint16_t dmin;  // f16
};
static_assert(sizeof(BlockQ2_K) == 84 && offsetof(BlockQ2_K, d) == 80);

// Codes as in Q2_K with a third bit: bit i / 32 of high[i % 32]. x = d * (scale - 32) * (code - 4);
// scales of 6 bits, packed: low nibbles and high nibbles of bytes 0..7, then two bits each.
struct BlockQ3_K {
  std::uint8_t high[32];
  std::uint8_t q[64];
  std::uint8_t scales[12];
  std::uint16_t d;  // f16
};
static_assert(sizeof(BlockQ3_K) == 110 && offsetof(BlockQ3_K, scales) == 96);

// s = i / 32; a byte holds a code of an even s and, in its high nibble, one of the next s:
// x = d * scale[s] * code - dmin * minimum[s]; both of 6 bits, packed in 12 bytes
struct BlockQ4_K {
  std::uint16_t d;     // f16
  std::uint16_t dmin;  // f16
  std::uint8_t scales[12];
  std::uint8_t q[128];
};
static_assert(sizeof(BlockQ4_K) == 144 && offsetof(BlockQ4_K, q) == 16);

// As Q4_K with a fifth bit: bit s of high[i % 32]
struct BlockQ5_K {
  std::uint16_t d;     // f16
  std::uint16_t dmin;  // f16
  std::uint8_t scales[12];
  std::uint8_t high[32];
  std::uint8_t q[128];
};
static_assert(sizeof(BlockQ5_K) == 176 && offsetof(BlockQ5_K, q) == 48);

// x = d * scales[i / 16] * (code - 32), codes of four low and two high bits
struct BlockQ6_K {
  std::uint8_t low[128];
  std::uint8_t high[64];
  std::int8_t scales[16];
  std::uint16_t d;  // f16
};
static_assert(sizeof(BlockQ6_K) == 210 && offsetof(BlockQ6_K, scales) == 192);

// s = i / 32: x = d * (scale[s] - 32) * iq4_codes[nibble], scales of 6 bits: nibbles of scales_low,
// two bits each of scales_high; s has its 32 nibbles in 16 bytes, positions as in Q4_0
struct BlockIQ4_XS {
  std::uint16_t d;  // f16
  std::uint16_t scales_high;
  std::uint8_t scales_low[4];
  std::uint8_t q[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136 && offsetof(BlockIQ4_XS, q) == 8);

// --- super-blocks over codebooks (kernels/grids) ---
// g: groups of 8 values; a 7-bit sign index v stands for 8 signs, the eighth makes their number
// even. Scales n of 3 or 4 bits mean 2n + 1.

// Per 32 values 4 indices and a word: 7 sign bits for each group, n in the top 4 bits. d / 8
struct BlockIQ2_XXS {
  std::uint16_t d;  // f16
  struct {
    std::uint8_t index[4];
    std::uint8_t word[4];
  } part[8];
};
static_assert(sizeof(BlockIQ2_XXS) == 66 && offsetof(BlockIQ2_XXS, part) == 2);

// Per group an index of 9 bits and 7 sign bits; n per 16 values. d / 8
struct BlockIQ2_XS {
  std::uint16_t d;  // f16
  std::uint16_t q[32];
  std::uint8_t scales[8];
};
static_assert(sizeof(BlockIQ2_XS) == 74 && offsetof(BlockIQ2_XS, scales) == 66);

// Index of 10 bits, the upper two in `high`; all signs; n per 16 values. d / 8
struct BlockIQ2_S {
  std::uint16_t d;  // f16
  std::uint8_t q[32];
  std::uint8_t signs[32];
  std::uint8_t high[8];
  std::uint8_t scales[8];
};
static_assert(sizeof(BlockIQ2_S) == 82 && offsetof(BlockIQ2_S, scales) == 74);

// Two indices a group (4 values each); a word per 32 values as in IQ2_XXS. d / 4
struct BlockIQ3_XXS {
  std::uint16_t d;  // f16
  std::uint8_t q[64];
  std::uint8_t words[32];
};
static_assert(sizeof(BlockIQ3_XXS) == 98 && offsetof(BlockIQ3_XXS, words) == 66);

// Two indices of 9 bits a group, the upper bit in `high`; all signs; n per 32 values. d
struct BlockIQ3_S {
  std::uint16_t d;  // f16
  std::uint8_t q[64];
  std::uint8_t high[8];
  std::uint8_t signs[32];
  std::uint8_t scales[4];
};
static_assert(sizeof(BlockIQ3_S) == 110 && offsetof(BlockIQ3_S, scales) == 106);

// Per 32 values a word: three upper index bits for each group, n of 3 bits, and the sign of an
// eighth that is added to all values: code = 8 * grid + 1 or - 1, times d / 8
struct BlockIQ1_S {
  std::uint16_t d;  // f16
  std::uint8_t q[32];
  std::uint16_t high[8];
};
static_assert(sizeof(BlockIQ1_S) == 50 && offsetof(BlockIQ1_S, high) == 34);

// As IQ1_S with that sign per group and n per 16 values; d in the top nibbles of the scale words
struct BlockIQ1_M {
  std::uint8_t q[32];
  std::uint8_t high[16];
  std::uint16_t scales[4];
};
static_assert(sizeof(BlockIQ1_M) == 56 && offsetof(BlockIQ1_M, scales) == 48);

}  // namespace millrace
