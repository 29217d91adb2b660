#include "kernels/reference_scaled.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/reference.h"
#include "runtime/base/check.h"

namespace millrace::reference {

namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double e4m3(unsigned byte) {
  const unsigned exponent = byte >> 3 & 15;
  const unsigned mantissa = byte & 7;
  if (exponent == 15 && mantissa == 7) return nan;
  const double magnitude = exponent == 0
                               ? std::ldexp(mantissa, -9)
                               : std::ldexp(1.0 + mantissa / 8.0, static_cast<int>(exponent) - 7);
  return byte >= 0x80 ? -magnitude : magnitude;
}

// Minus zero is zero, as in MXFP4 blocks, whose codes are integers.
double e2m1(unsigned code) {
  const unsigned exponent = code >> 1 & 3;
  const unsigned mantissa = code & 1;
  const double magnitude = exponent == 0
                               ? 0.5 * mantissa
                               : std::ldexp(1.0 + 0.5 * mantissa, static_cast<int>(exponent) - 1);
  return code > 8 ? -magnitude : magnitude;
}

double scale_at(const WeightRows& weights, std::size_t tile_row, std::size_t index) {
  const std::byte* const row = weights.scales + tile_row * weights.scale_row_bytes;
  switch (weights.scale_type) {
    case ScaleType::f32: {
      float value;
      std::memcpy(&value, row + 4 * index, sizeof value);
      return value;
    }
    case ScaleType::bf16: {
      std::uint16_t bits;
      std::memcpy(&bits, row + 2 * index, sizeof bits);
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
    case ScaleType::e8m0: {
      const int e = std::to_integer<int>(row[index]);
      return e == 255 ? nan : std::ldexp(1.0, e - 127);
    }
    default:
      MILLRACE_CHECK(!"a scaled type without scales");
      return 0;
  }
}

double code_value(DType type, const std::byte* row, std::size_t column) {
  if (type == DType::f8_e4m3) return e4m3(std::to_integer<unsigned>(row[column]));
  MILLRACE_CHECK(type == DType::fp4);
  return e2m1(std::to_integer<unsigned>(row[column / 2]) >> (column % 2 * 4) & 15);
}

// A row's nibble of a line of words: of codes or zeros.
int awq_nibble(const WeightRows& weights, const std::byte* lines, std::size_t line,
               std::size_t row) {
  constexpr int places[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of the rows of a word, in nibbles
  std::uint32_t word = 0;
  std::memcpy(&word, lines + line * weights.row_bytes + row / 8 * sizeof word, sizeof word);
  return static_cast<int>(word >> (4 * places[row % 8]) & 15);
}

int awq_integer(const WeightRows& weights, std::size_t row, std::size_t column) {
  return awq_nibble(weights, weights.data, column, row) -
         awq_nibble(weights, weights.zeros, column / 128, row);
}

double awq_scale(const WeightRows& weights, std::size_t row, std::size_t group) {
  const std::byte* const at = weights.scales + group * weights.scale_row_bytes + 2 * row;
  std::uint16_t half = 0;
  std::memcpy(&half, at, sizeof half);
  return half_value(half);
}

float tree(float (&acc)[16]) {
  for (std::size_t half = 8; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) acc[i] += acc[i + half];
  return acc[0];
}

}  // namespace

void decode_scaled(DType type, const WeightRows& weights, std::size_t row, double* out) {
  if (type == DType::awq) {
    for (std::size_t i = 0; i < weights.columns; ++i)
      out[i] = awq_integer(weights, row, i) * awq_scale(weights, row, i / 128);
    return;
  }
  const ScaleTile tile = scale_tile(type);
  const std::byte* const codes = weights.data + row * weights.row_bytes;
  for (std::size_t i = 0; i < weights.columns; ++i)
    out[i] = code_value(type, codes, i) *
             scale_at(weights, (weights.tile_row + row) / tile.rows, i / tile.columns);
}

float dot_scaled_f32(DType type, const WeightRows& weights, std::size_t row, const float* x) {
  std::vector<double> values(weights.columns);
  decode_scaled(type, weights, row, values.data());
  float acc[16] = {};
  for (std::size_t i = 0; i < values.size(); ++i)
    acc[i % 16] = std::fma(static_cast<float>(values[i]), x[i], acc[i % 16]);
  return tree(acc);
}

float dot_scaled_q8(const WeightRows& weights, std::size_t row, const std::int8_t* q,
                    const float* scale) {
  const std::byte* const codes = weights.data + row * weights.row_bytes;
  float acc[16] = {};
  for (std::size_t block = 0; block < weights.columns / 32; ++block) {
    int sum = 0;
    for (std::size_t i = 32 * block; i < 32 * block + 32; ++i)
      sum += static_cast<int>(2 * code_value(DType::fp4, codes, i)) * q[i];
    const auto halved = static_cast<float>(scale_at(weights, weights.tile_row + row, block) / 2);
    acc[block % 16] = std::fma(static_cast<float>(sum), halved * scale[block], acc[block % 16]);
  }
  return tree(acc);
}

float dot_awq_q8(const WeightRows& weights, std::size_t row, const std::int8_t* q,
                 const float* scale) {
  float acc[16] = {};
  for (std::size_t block = 0; block < weights.columns / 32; ++block) {
    int sum = 0;
    for (std::size_t i = 32 * block; i < 32 * block + 32; ++i)
      sum += awq_integer(weights, row, i) * q[i];
    const auto own = static_cast<float>(awq_scale(weights, row, block / 4));
    acc[block % 16] = std::fma(static_cast<float>(sum), own * scale[block], acc[block % 16]);
  }
  return tree(acc);
}

}  // namespace millrace::reference
