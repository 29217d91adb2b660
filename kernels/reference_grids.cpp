#include <bit>
#include <cstring>

#include "kernels/grids/grids.h"
#include "kernels/reference.h"
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

unsigned byte_at(const std::byte* p) { return std::to_integer<unsigned>(*p); }

// Element j of an entry, as the unsigned or signed byte that it is.
int entry(std::uint64_t word, int j) { return static_cast<int>(word >> 8 * j & 255u); }
int signed_entry(std::uint64_t word, int j) { return static_cast<std::int8_t>(word >> 8 * j); }

// Sign j of a 7-bit sign index: the eighth makes the number of negative ones even.
int sign7(unsigned index, int j) {
  const unsigned eight = index | (std::popcount(index) % 2u) << 7;
  return (eight >> j & 1u) != 0 ? -1 : 1;
}
int sign8(unsigned bits, int j) { return (bits >> j & 1u) != 0 ? -1 : 1; }

// For s: sub-blocks of 32, g: their groups of 8, j: their values.
template <class Function>
void for_values(Function function) {
  for (int s = 0; s < 8; ++s)
    for (int g = 0; g < 4; ++g)
      for (int j = 0; j < 8; ++j) function(s, g, j, 32 * s + 8 * g + j);
}

void set_scale(SuperBlock& out, int s, int scale) {
  out.scale[2 * s] = out.scale[2 * s + 1] = scale;
}

void read_iq2_xxs(const std::byte* p, SuperBlock& out) {
  out.factor = half_value(read_as<std::uint16_t>(p)) / 8;
  for_values([&](int s, int g, int j, int i) {
    const std::byte* const part = p + 2 + 8 * s;
    const auto word = read_as<std::uint32_t>(part + 4);
    set_scale(out, s, static_cast<int>(2 * (word >> 28) + 1));
    out.code[i] = entry(iq2xxs_grid.at[byte_at(part + g)], j) * sign7(word >> 7 * g & 127u, j);
  });
}

void read_iq2_xs(const std::byte* p, SuperBlock& out) {
  out.factor = half_value(read_as<std::uint16_t>(p)) / 8;
  for_values([&](int s, int g, int j, int i) {
    const unsigned q = read_as<std::uint16_t>(p + 2 + 2 * (4 * s + g));
    const unsigned scales = byte_at(p + 66 + s);
    out.scale[2 * s + g / 2] = static_cast<int>(2 * (g < 2 ? scales & 15u : scales >> 4) + 1);
    out.code[i] = entry(iq2xs_grid.at[q & 511u], j) * sign7(q >> 9, j);
  });
}

void read_iq2_s(const std::byte* p, SuperBlock& out) {
  out.factor = half_value(read_as<std::uint16_t>(p)) / 8;
  for_values([&](int s, int g, int j, int i) {
    const unsigned high = byte_at(p + 66 + s) >> 2 * g & 3u;
    const unsigned scales = byte_at(p + 74 + s);
    out.scale[2 * s + g / 2] = static_cast<int>(2 * (g < 2 ? scales & 15u : scales >> 4) + 1);
    out.code[i] = entry(iq2s_grid.at[byte_at(p + 2 + 4 * s + g) | high << 8], j) *
                  sign8(byte_at(p + 34 + 4 * s + g), j);
  });
}

void read_iq3_xxs(const std::byte* p, SuperBlock& out) {
  out.factor = half_value(read_as<std::uint16_t>(p)) / 4;
  for_values([&](int s, int g, int j, int i) {
    const auto word = read_as<std::uint32_t>(p + 66 + 4 * s);
    set_scale(out, s, static_cast<int>(2 * (word >> 28) + 1));
    out.code[i] = entry(iq3xxs_grid.at[byte_at(p + 2 + 8 * s + 2 * g + j / 4)], j % 4) *
                  sign7(word >> 7 * g & 127u, j);
  });
}

void read_iq3_s(const std::byte* p, SuperBlock& out) {
  out.factor = half_value(read_as<std::uint16_t>(p));
  for_values([&](int s, int g, int j, int i) {
    const int t = 2 * g + j / 4;
    const unsigned high = byte_at(p + 66 + s) >> t & 1u;
    set_scale(out, s, static_cast<int>(2 * (byte_at(p + 106 + s / 2) >> s % 2 * 4 & 15u) + 1));
    out.code[i] = entry(iq3s_grid.at[byte_at(p + 2 + 8 * s + t) | high << 8], j % 4) *
                  sign8(byte_at(p + 74 + 4 * s + g), j);
  });
}

// Eighths: 8 * (grid + 1/8) or 8 * (grid - 1/8).
void read_iq1_s(const std::byte* p, SuperBlock& out) {
  out.factor = half_value(read_as<std::uint16_t>(p)) / 8;
  for_values([&](int s, int g, int j, int i) {
    const unsigned word = read_as<std::uint16_t>(p + 34 + 2 * s);
    set_scale(out, s, static_cast<int>(2 * (word >> 12 & 7u) + 1));
    const unsigned index = byte_at(p + 2 + 4 * s + g) | (word >> 3 * g & 7u) << 8;
    out.code[i] = 8 * signed_entry(iq1s_grid.at[index], j) + (word >> 15 != 0 ? -1 : 1);
  });
}

void read_iq1_m(const std::byte* p, SuperBlock& out) {
  unsigned half = 0;
  for (int k = 0; k < 4; ++k)
    half |= static_cast<unsigned>(read_as<std::uint16_t>(p + 48 + 2 * k) >> 12) << 4 * k;
  out.factor = half_value(static_cast<std::uint16_t>(half)) / 8;
  for_values([&](int s, int g, int j, int i) {
    const unsigned word = read_as<std::uint16_t>(p + 48 + 2 * (s / 2));
    out.scale[2 * s + g / 2] = static_cast<int>(2 * (word >> (6 * (s % 2) + 3 * (g / 2)) & 7u) + 1);
    const unsigned nibble = byte_at(p + 32 + 2 * s + g / 2) >> 4 * (g % 2) & 15u;
    const unsigned index = byte_at(p + 4 * s + g) | (nibble & 7u) << 8;
    out.code[i] = 8 * signed_entry(iq1s_grid.at[index], j) + ((nibble & 8u) != 0 ? -1 : 1);
  });
}

}  // namespace

void read_grid_block(DType type, const std::byte* block, SuperBlock& out) {
  switch (type) {
    case DType::iq2_xxs:
      return read_iq2_xxs(block, out);
    case DType::iq2_xs:
      return read_iq2_xs(block, out);
    case DType::iq2_s:
      return read_iq2_s(block, out);
    case DType::iq3_xxs:
      return read_iq3_xxs(block, out);
    case DType::iq3_s:
      return read_iq3_s(block, out);
    case DType::iq1_s:
      return read_iq1_s(block, out);
    case DType::iq1_m:
      return read_iq1_m(block, out);
    default:
      MILLRACE_CHECK(!"not a format over a codebook");
  }
}

}  // namespace millrace::reference
