#include "kernels/reference_super.h"

#include <cstring>

#include "kernels/blocks.h"
#include "kernels/reference.h"
#include "runtime/base/check.h"

namespace millrace::reference {

namespace {

double half_at(const std::byte* p) {
  std::uint16_t half;
  std::memcpy(&half, p, sizeof half);
  return half_value(half);
}

// Bits first .. first + count - 1 of a byte.
int bits(std::byte byte, int first, int count) {
  return std::to_integer<int>(byte) >> first & ((1 << count) - 1);
}

void read_q2_k(const std::byte* p, SuperBlock& out) {
  out.factor = half_at(p + 80);
  out.minimum_factor = half_at(p + 82);
  out.has_minima = true;
  for (int s = 0; s < 16; ++s) {
    out.scale[s] = bits(p[s], 0, 4);
    out.minimum[s] = bits(p[s], 4, 4);
  }
  for (int i = 0; i < 256; ++i)
    out.code[i] = bits(p[16 + 32 * (i / 128) + i % 32], 2 * (i % 128 / 32), 2);
}

void read_q3_k(const std::byte* p, SuperBlock& out) {
  out.factor = half_at(p + 108);
  const std::byte* const scales = p + 96;
  for (int s = 0; s < 16; ++s) {
    const int low = s < 8 ? bits(scales[s], 0, 4) : bits(scales[s - 8], 4, 4);
    out.scale[s] = (low | bits(scales[8 + s % 4], 2 * (s / 4), 2) << 4) - 32;
  }
  for (int i = 0; i < 256; ++i) {
    const int low = bits(p[32 + 32 * (i / 128) + i % 32], 2 * (i % 128 / 32), 2);
    out.code[i] = low - (bits(p[i % 32], i / 32, 1) != 0 ? 0 : 4);
  }
}

// Q4_K, and with `fifth_bit` Q5_K.
void read_q4_k(const std::byte* p, bool fifth_bit, SuperBlock& out) {
  out.factor = half_at(p);
  out.minimum_factor = half_at(p + 2);
  out.has_minima = true;
  const std::byte* const k = p + 4;
  for (int s = 0; s < 8; ++s) {
    const bool front = s < 4;
    const int scale = front ? bits(k[s], 0, 6) : bits(k[s + 4], 0, 4) | bits(k[s - 4], 6, 2) << 4;
    const int minimum = front ? bits(k[s + 4], 0, 6) : bits(k[s + 4], 4, 4) | bits(k[s], 6, 2) << 4;
    out.scale[2 * s] = out.scale[2 * s + 1] = scale;
    out.minimum[2 * s] = out.minimum[2 * s + 1] = minimum;
  }
  const std::byte* const q = p + (fifth_bit ? 48 : 16);
  for (int i = 0; i < 256; ++i) {
    out.code[i] = bits(q[32 * (i / 64) + i % 32], i / 32 % 2 * 4, 4);
    if (fifth_bit) out.code[i] |= bits(p[16 + i % 32], i / 32, 1) << 4;
  }
}

void read_q6_k(const std::byte* p, SuperBlock& out) {
  out.factor = half_at(p + 208);
  for (int s = 0; s < 16; ++s) out.scale[s] = static_cast<std::int8_t>(p[192 + s]);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128;
    const int t = i % 128 / 32;
    const int low = bits(p[64 * half + 32 * (t % 2) + i % 32], t < 2 ? 0 : 4, 4);
    out.code[i] = (low | bits(p[128 + 32 * half + i % 32], 2 * t, 2) << 4) - 32;
  }
}

void read_iq4_xs(const std::byte* p, SuperBlock& out) {
  out.factor = half_at(p);
  for (int s = 0; s < 8; ++s) {
    const int low = bits(p[4 + s / 2], s % 2 * 4, 4);
    const int high = bits(p[2 + s / 4], 2 * (s % 4), 2);
    out.scale[2 * s] = out.scale[2 * s + 1] = (low | high << 4) - 32;
    for (int l = 0; l < 32; ++l)
      out.code[32 * s + l] = iq4_codes[bits(p[8 + 16 * s + l % 16], l < 16 ? 0 : 4, 4)];
  }
}

}  // namespace

SuperBlock read_super_block(DType type, const std::byte* block) {
  SuperBlock out{};
  switch (type) {
    case DType::q2_k:
      read_q2_k(block, out);
      return out;
    case DType::q3_k:
      read_q3_k(block, out);
      return out;
    case DType::q4_k:
    case DType::q5_k:
      read_q4_k(block, type == DType::q5_k, out);
      return out;
    case DType::q6_k:
      read_q6_k(block, out);
      return out;
    case DType::iq4_xs:
      read_iq4_xs(block, out);
      return out;
    case DType::iq2_xxs:
    case DType::iq2_xs:
    case DType::iq2_s:
    case DType::iq3_xxs:
    case DType::iq3_s:
    case DType::iq1_s:
    case DType::iq1_m:
      read_grid_block(type, block, out);
      return out;
    default:
      MILLRACE_CHECK(!"type without a reference");
      return out;
  }
}

}  // namespace millrace::reference
