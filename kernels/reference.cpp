#include "kernels/reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/blocks.h"
#include "kernels/reference_super.h"
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

// NVFP4: four sub-blocks of 16 values.
struct ScaledCodes {
  double scale[4];
  int code[64];
};
ScaledCodes read_nvfp4(const std::byte* p) {
  ScaledCodes out;
  for (int s = 0; s < 4; ++s) {
    const int byte = std::to_integer<int>(p[s]) & 127;
    const int exponent = byte >> 3;
    const double mantissa = exponent == 0 ? byte : 8 + byte % 8;
    out.scale[s] = byte == 127 ? 0 : std::ldexp(mantissa, std::max(exponent, 1) - 10) / 2;
    for (int j = 0; j < 8; ++j) {
      const int both = std::to_integer<int>(p[4 + 8 * s + j]);
      out.code[16 * s + j] = mxfp4_codes[both & 15];
      out.code[16 * s + 8 + j] = mxfp4_codes[both >> 4];
    }
  }
  return out;
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

namespace {

// Every element's scaled code, and beside it what the block's minimum adds (0 without minima).
// True if there are minima.
bool decode_parts(DType type, const std::byte* row, std::size_t columns, double* out,
                  double* minimum) {
  const DTypeInfo& info = dtype_info(type);
  MILLRACE_CHECK(columns % info.block_elems == 0);
  bool has_minima = false;
  std::fill_n(minimum, columns, 0.0);
  for (std::size_t i = 0; i < columns; i += info.block_elems, row += info.block_bytes) {
    if (type == DType::f32) {
      out[i] = read_as<float>(row);
    } else if (type == DType::f16) {
      out[i] = half_value(read_as<std::uint16_t>(row));
    } else if (type == DType::bf16) {
      const std::uint32_t bits = static_cast<std::uint32_t>(read_as<std::uint16_t>(row)) << 16;
      out[i] = read_as<float>(reinterpret_cast<const std::byte*>(&bits));
    } else if (type == DType::nvfp4) {
      const ScaledCodes block = read_nvfp4(row);
      for (std::size_t j = 0; j < 64; ++j) out[i + j] = block.scale[j / 16] * block.code[j];
    } else if (info.block_elems == 256) {
      const SuperBlock block = read_super_block(type, row);
      has_minima = block.has_minima;
      for (std::size_t j = 0; j < 256; ++j) {
        out[i + j] = block.factor * block.scale[j / 16] * block.code[j];
        if (has_minima) minimum[i + j] = -(block.minimum_factor * block.minimum[j / 16]);
      }
    } else {
      const Block block = read_block(type, row);
      has_minima = block.has_minimum;
      for (std::size_t j = 0; j < 32; ++j) {
        out[i + j] = block.scale * block.code[j];
        if (has_minima) minimum[i + j] = block.minimum;
      }
    }
  }
  return has_minima;
}

}  // namespace

void decode_row(DType type, const std::byte* row, std::size_t columns, double* out) {
  std::vector<double> minimum(columns);
  if (!decode_parts(type, row, columns, out, minimum.data())) return;
  for (std::size_t i = 0; i < columns; ++i) out[i] += minimum[i];
}

namespace {

// One block of `values` activations. False if a value is NaN or infinite.
bool quantize_block(const float* x, std::size_t values, std::int8_t* q, float* scale) {
  float largest = 0.0f;
  for (std::size_t i = 0; i < values; ++i) {
    if (!std::isfinite(x[i])) return false;
    largest = std::max(largest, std::fabs(x[i]));
  }
  const bool empty = largest < 0x1p-100f;
  const float factor = empty ? 0.0f : 127.0f / largest;
  *scale = empty ? 0.0f : largest / 127.0f;
  for (std::size_t i = 0; i < values; ++i)
    q[i] = static_cast<std::int8_t>(std::nearbyint(x[i] * factor));
  return true;
}

// The 16 accumulators of a result and those of its minima.
struct Accumulators {
  float products[16] = {};
  float minima[16] = {};
  void add(std::size_t block, std::int32_t sum, double factor, float activation_scale) {
    step(products[block % 16], sum, factor, activation_scale);
  }
  void add_minimum(std::size_t block, std::int32_t sum, double factor, float activation_scale) {
    step(minima[block % 16], sum, factor, activation_scale);
  }
  static void step(float& acc, std::int32_t sum, double factor, float activation_scale) {
    const float both = static_cast<float>(factor) * activation_scale;
    acc = std::fma(static_cast<float>(sum), both, acc);
  }
};

float dot_q8_super(DType type, const std::byte* row, std::size_t columns, const std::int8_t* q,
                   const float* scale) {
  Accumulators acc;
  bool has_minima = false;
  for (std::size_t b = 0; b < columns / 256; ++b, row += dtype_info(type).block_bytes, q += 256) {
    const SuperBlock block = read_super_block(type, row);
    std::int32_t products = 0;
    std::int32_t minima = 0;
    for (int i = 0; i < 256; ++i) {
      products += block.scale[i / 16] * block.code[i] * q[i];
      minima += block.minimum[i / 16] * q[i];
    }
    acc.add(b, products, block.factor, scale[b]);
    acc.add_minimum(b, minima, block.minimum_factor, scale[b]);
    has_minima = block.has_minima;
  }
  for (int i = 0; has_minima && i < 16; ++i) acc.products[i] -= acc.minima[i];
  return tree(acc.products);
}

// A scale block of 16 values, its activations scaled per 32.
float dot_nvfp4(const std::byte* row, std::size_t columns, const std::int8_t* q,
                const float* scale) {
  Accumulators acc;
  for (std::size_t b = 0; b < columns / 16; ++b) {
    const ScaledCodes block = read_nvfp4(row + b / 4 * 36);
    std::int32_t products = 0;
    for (std::size_t i = 0; i < 16; ++i) products += block.code[b % 4 * 16 + i] * q[16 * b + i];
    acc.add(b, products, block.scale[b % 4], scale[b / 2]);
  }
  return tree(acc.products);
}

}  // namespace

bool quantize_q8(const float* x, std::size_t columns, std::int8_t* q, float* scale,
                 std::int32_t* sum) {
  for (std::size_t b = 0; b < columns / 32; ++b, q += 32) {
    if (!quantize_block(x + 32 * b, 32, q, scale + b)) return false;
    sum[b] = 0;
    for (int i = 0; i < 32; ++i) sum[b] += q[i];
  }
  return true;
}

bool quantize_q8_super(const float* x, std::size_t columns, std::int8_t* q, float* scale,
                       std::int16_t* sum) {
  for (std::size_t b = 0; b < columns / 256; ++b, q += 256, sum += 16) {
    if (!quantize_block(x + 256 * b, 256, q, scale + b)) return false;
    for (int s = 0; s < 16; ++s) {
      int units = 0;
      for (int i = 0; i < 16; ++i) units += q[16 * s + i];
      sum[s] = static_cast<std::int16_t>(units);
    }
  }
  return true;
}

float dot_q8(DType type, const std::byte* row, std::size_t columns, const std::int8_t* q,
             const float* scale) {
  if (dtype_info(type).block_elems == 256) return dot_q8_super(type, row, columns, q, scale);
  if (type == DType::nvfp4) return dot_nvfp4(row, columns, q, scale);
  Accumulators acc;
  bool has_minimum = false;
  const std::size_t block_bytes = dtype_info(type).block_bytes;
  for (std::size_t b = 0; b < columns / 32; ++b, q += 32) {
    const Block block = read_block(type, row + b * block_bytes);
    std::int32_t products = 0;
    std::int32_t sum = 0;
    for (int i = 0; i < 32; ++i) {
      products += block.code[i] * q[i];
      sum += q[i];
    }
    acc.add(b, products, block.scale, scale[b]);
    acc.add_minimum(b, sum, block.minimum, scale[b]);
    has_minimum = block.has_minimum;
  }
  for (int i = 0; has_minimum && i < 16; ++i) acc.products[i] += acc.minima[i];
  return tree(acc.products);
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
  std::vector<double> minimum(columns);
  decode_parts(type, row, columns, w.data(), minimum.data());
  Dot64 dot{};
  for (std::size_t i = 0; i < columns; ++i) {
    dot.sum += (w[i] + minimum[i]) * x[i];
    dot.magnitude += (std::fabs(w[i]) + std::fabs(minimum[i])) * std::fabs(x[i]);
  }
  return dot;
}

}  // namespace millrace::reference
