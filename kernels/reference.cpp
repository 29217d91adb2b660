#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/blocks.h"
#include "runtime/base/check.h"

namespace millrace::reference {

namespace {

template <class T>
T read_as(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

// A block as integer codes, a scale and a minimum: x[i] = scale * code[i] + minimum.
struct Block {
  double scale;
  double minimum;
  bool has_minimum;
  int code[32];
};

int nibble(const std::byte* q, int i) {
  const int byte = std::to_integer<int>(q[i % 16]);
  return i < 16 ? byte & 15 : byte >> 4;
}

int bit(std::uint32_t word, int i) { return static_cast<int>(word >> i & 1u); }

Block read_block(DType type, const std::byte* p) {
  Block block{};
  switch (type) {
    case DType::q8_0:
      block.scale = half_value(read_as<std::uint16_t>(p));
      for (int i = 0; i < 32; ++i) block.code[i] = read_as<std::int8_t>(p + 2 + i);
      return block;
    case DType::q4_0:
      block.scale = half_value(read_as<std::uint16_t>(p));
      for (int i = 0; i < 32; ++i) block.code[i] = nibble(p + 2, i) - 8;
      return block;
    case DType::q4_1:
    case DType::q5_1:
      block.scale = half_value(read_as<std::uint16_t>(p));
      block.minimum = half_value(read_as<std::uint16_t>(p + 2));
      block.has_minimum = true;
      for (int i = 0; i < 32; ++i)
        block.code[i] = type == DType::q4_1
                            ? nibble(p + 4, i)
                            : nibble(p + 8, i) + 16 * bit(read_as<std::uint32_t>(p + 4), i);
      return block;
    case DType::q5_0:
      block.scale = half_value(read_as<std::uint16_t>(p));
      for (int i = 0; i < 32; ++i)
        block.code[i] = nibble(p + 6, i) + 16 * bit(read_as<std::uint32_t>(p + 2), i) - 16;
      return block;
    case DType::iq4_nl:
      block.scale = half_value(read_as<std::uint16_t>(p));
      for (int i = 0; i < 32; ++i) block.code[i] = iq4_codes[nibble(p + 2, i)];
      return block;
    case DType::mxfp4:
      block.scale = std::ldexp(1.0, std::to_integer<int>(p[0]) - 128);
      for (int i = 0; i < 32; ++i) block.code[i] = mxfp4_codes[nibble(p + 1, i)];
      return block;
    default:
      MILLRACE_CHECK(!"type without a reference");
      return block;
  }
}

float tree(float (&acc)[16]) {
  for (int half = 8; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) acc[i] += acc[i + half];
  return acc[0];
}

}  // namespace

double half_value(std::uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int mantissa = half & 1023;
  double value;
  if (exponent == 31) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else {
    value = std::ldexp(1024 + mantissa, exponent - 25);
  }
  return (half & 0x8000) != 0 ? -value : value;
}

void decode_row(DType type, const std::byte* row, std::size_t columns, double* out) {
  const DTypeInfo& info = dtype_info(type);
  MILLRACE_CHECK(columns % info.block_elems == 0);
  for (std::size_t i = 0; i < columns; i += info.block_elems, row += info.block_bytes) {
    if (type == DType::f32) {
      out[i] = read_as<float>(row);
    } else if (type == DType::f16) {
      out[i] = half_value(read_as<std::uint16_t>(row));
    } else if (type == DType::bf16) {
      const std::uint32_t bits = static_cast<std::uint32_t>(read_as<std::uint16_t>(row)) << 16;
      out[i] = read_as<float>(reinterpret_cast<const std::byte*>(&bits));
    } else {
      const Block block = read_block(type, row);
      for (std::size_t j = 0; j < 32; ++j) {
        out[i + j] = block.scale * block.code[j];
        if (block.has_minimum) out[i + j] += block.minimum;
      }
    }
  }
}

bool quantize_q8(const float* x, std::size_t columns, std::int8_t* q, float* scale,
                 std::int32_t* sum) {
  for (std::size_t b = 0; b < columns / 32; ++b, x += 32, q += 32) {
    float largest = 0.0f;
    for (int i = 0; i < 32; ++i) {
      if (!std::isfinite(x[i])) return false;
      largest = std::max(largest, std::fabs(x[i]));
    }
    const bool empty = largest < 0x1p-100f;
    const float factor = empty ? 0.0f : 127.0f / largest;
    scale[b] = empty ? 0.0f : largest / 127.0f;
    sum[b] = 0;
    for (int i = 0; i < 32; ++i) {
      q[i] = static_cast<std::int8_t>(std::nearbyint(x[i] * factor));
      sum[b] += q[i];
    }
  }
  return true;
}

float dot_q8(DType type, const std::byte* row, std::size_t columns, const std::int8_t* q,
             const float* scale) {
  float acc[16] = {};
  float minima[16] = {};
  bool has_minimum = false;
  const std::size_t block_bytes = dtype_info(type).block_bytes;
  for (std::size_t b = 0; b < columns / 32; ++b) {
    const Block block = read_block(type, row + b * block_bytes);
    std::int32_t products = 0;
    std::int32_t sum = 0;
    for (int i = 0; i < 32; ++i) {
      products += block.code[i] * q[32 * b + static_cast<std::size_t>(i)];
      sum += q[32 * b + static_cast<std::size_t>(i)];
    }
    const float both = static_cast<float>(block.scale) * scale[b];
    acc[b % 16] = std::fma(static_cast<float>(products), both, acc[b % 16]);
    const float minimum = static_cast<float>(block.minimum) * scale[b];
    minima[b % 16] = std::fma(static_cast<float>(sum), minimum, minima[b % 16]);
    has_minimum = block.has_minimum;
  }
  for (int i = 0; has_minimum && i < 16; ++i) acc[i] += minima[i];
  return tree(acc);
}

float dot_f32(DType type, const std::byte* row, std::size_t columns, const float* x) {
  std::vector<double> w(columns);
  decode_row(type, row, columns, w.data());
  float acc[16] = {};
  for (std::size_t i = 0; i < columns; ++i)
    acc[i % 16] = std::fma(static_cast<float>(w[i]), x[i], acc[i % 16]);
  return tree(acc);
}

Dot64 dot_f64(DType type, const std::byte* row, std::size_t columns, const double* x) {
  std::vector<double> w(columns);
  decode_row(type, row, columns, w.data());
  Dot64 dot{};
  for (std::size_t i = 0; i < columns; ++i) {
    dot.sum += w[i] * x[i];
    dot.magnitude += std::fabs(w[i] * x[i]);
  }
  return dot;
}

}  // namespace millrace::reference
