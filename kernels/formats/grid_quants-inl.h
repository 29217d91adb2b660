// IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS, IQ3_S, IQ1_S and IQ1_M over an ISA policy: codes are looked up
// in codebooks eight (four) at a time. What a super-block format offers to the products:
// kernels/README.md.
#pragma once

#include <cstring>

#include "kernels/blocks.h"
#include "kernels/grids/grids.h"
#include "kernels/super_block-inl.h"

namespace millrace {
namespace {

template <class Word>
[[gnu::always_inline]] inline Word read_at(const std::byte* p) {
  Word word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

[[gnu::always_inline]] inline unsigned byte_at(const std::byte* p) {
  return std::to_integer<unsigned>(*p);
}

// 7 sign bits in each byte, the eighth set where their number is odd.
[[gnu::always_inline]] inline std::uint64_t even_signs(std::uint64_t sevens) {
  std::uint64_t parity = sevens ^ sevens >> 4;
  parity ^= parity >> 2;
  parity ^= parity >> 1;
  return sevens | (parity & 0x0101010101010101u) << 7;
}

// Four times 7 bits from the low end of a word, one in each byte.
[[gnu::always_inline]] inline std::uint64_t spread_sevens(std::uint32_t word) {
  return (word & 0x7fu) | (word & 0x3f80u) << 1 | (word & 0x1fc000u) << 2 |
         (word & 0xfe00000u) << 3;
}

// Codes of 64 values: magnitudes (or values) of eight groups, and a bit for each value.
struct GridPart {
  std::uint64_t group[8];
  std::uint64_t bits;
};

// The parts that grid formats share: `Format` gives block_bytes, sub_scales, d(block),
// scales(block, out) and part(block, v, out).
template <class Format, std::size_t scale_count>
struct GridQuant {
  static constexpr SuperLayout layout = SuperLayout::natural;
  static constexpr bool paired = false;
  static constexpr bool slow_codes = true;
  template <class Isa>
  static constexpr bool signed_codes = true;
  template <class Isa>
  static constexpr std::int32_t bias = 0;
  static constexpr std::size_t sub_scales = scale_count;
  static constexpr bool has_minima = false;
  static constexpr std::int32_t code_offset = 0;
  static constexpr int factor_word = 0;

  template <class Isa>
  [[gnu::always_inline]] static void header(const std::byte* const (&rows)[super_rows],
                                            SuperHeader<Isa>& out) {
    alignas(64) std::int16_t scale[scale_count / 8][super_rows][8];
    alignas(64) std::int32_t d[super_rows][4];
    for (std::size_t r = 0; r < super_rows; ++r) {
      std::int16_t one[scale_count];
      Format::scales(rows[r], one);
      for (std::size_t half = 0; half < scale_count / 8; ++half)
        std::memcpy(scale[half][r], one + 8 * half, sizeof scale[half][r]);
      d[r][0] = Format::d(rows[r]);
      d[r][1] = d[r][2] = d[r][3] = 0;
    }
    for (std::size_t half = 0; half < scale_count / 8; ++half)
      out.scale[half] = Isa::load_b64(scale[half]);
    out.words = Isa::load_i(d[0]);
  }
  template <class Isa>
  [[gnu::always_inline]] static typename Isa::F32x16 factors(const typename Isa::I32x16& words) {
    return Isa::mul(Isa::half_words(words), Isa::set1(Format::unit));
  }
  static std::int32_t d(const std::byte* block) { return read_at<std::uint16_t>(block); }
};

// Formats whose groups are magnitudes with a sign bit for each value.
template <class Format, std::size_t scale_count>
struct SignedGrid : GridQuant<Format, scale_count> {
  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* block, typename Isa::B64 (&out)[4]) {
    for (std::size_t v = 0; v < 4; ++v) {
      GridPart part;
      Format::part(block, v, part);
      out[v] = Isa::negate_where(Isa::set8(part.group), part.bits);
    }
  }
};

// Nibbles n of `bytes` bytes, the lower one first, as 2n + 1.
template <std::size_t bytes>
[[gnu::always_inline]] inline void nibble_scales(const std::byte* p, std::int16_t* out) {
  for (std::size_t i = 0; i < bytes; ++i) {
    const unsigned both = byte_at(p + i);
    out[2 * i] = static_cast<std::int16_t>(2 * (both & 15u) + 1);
    out[2 * i + 1] = static_cast<std::int16_t>(2 * (both >> 4) + 1);
  }
}

// The two words of 32 values each that hold part v's signs.
[[gnu::always_inline]] inline std::uint64_t word_signs(std::uint32_t front, std::uint32_t back) {
  return even_signs(spread_sevens(front) | spread_sevens(back) << 32);
}
[[gnu::always_inline]] inline std::int16_t word_scale(std::uint32_t word) {
  return static_cast<std::int16_t>(2 * (word >> 28) + 1);
}

struct FormatIQ2_XXS : SignedGrid<FormatIQ2_XXS, 8> {
  static constexpr std::size_t block_bytes = sizeof(BlockIQ2_XXS);
  static constexpr float unit = 0.125f;
  static std::uint32_t word(const std::byte* block, std::size_t s) {
    return read_at<std::uint32_t>(block + offsetof(BlockIQ2_XXS, part) + 8 * s + 4);
  }
  [[gnu::always_inline]] static void scales(const std::byte* block, std::int16_t (&out)[8]) {
    for (std::size_t s = 0; s < 8; ++s) out[s] = word_scale(word(block, s));
  }
  [[gnu::always_inline]] static void part(const std::byte* block, std::size_t v, GridPart& out) {
    const std::byte* const index = block + offsetof(BlockIQ2_XXS, part) + 16 * v;
    for (std::size_t g = 0; g < 8; ++g)
      out.group[g] = iq2xxs_grid.at[byte_at(index + 8 * (g / 4) + g % 4)];
    out.bits = word_signs(word(block, 2 * v), word(block, 2 * v + 1));
  }
};

struct FormatIQ2_XS : SignedGrid<FormatIQ2_XS, 16> {
  static constexpr std::size_t block_bytes = sizeof(BlockIQ2_XS);
  static constexpr float unit = 0.125f;
  [[gnu::always_inline]] static void scales(const std::byte* block, std::int16_t (&out)[16]) {
    nibble_scales<8>(block + offsetof(BlockIQ2_XS, scales), out);
  }
  [[gnu::always_inline]] static void part(const std::byte* block, std::size_t v, GridPart& out) {
    std::uint64_t sevens = 0;
    for (std::size_t g = 0; g < 8; ++g) {
      const unsigned q = read_at<std::uint16_t>(block + offsetof(BlockIQ2_XS, q) + 16 * v + 2 * g);
      out.group[g] = iq2xs_grid.at[q & 511u];
      sevens |= static_cast<std::uint64_t>(q >> 9) << 8 * g;
    }
    out.bits = even_signs(sevens);
  }
};

struct FormatIQ2_S : SignedGrid<FormatIQ2_S, 16> {
  static constexpr std::size_t block_bytes = sizeof(BlockIQ2_S);
  static constexpr float unit = 0.125f;
  [[gnu::always_inline]] static void scales(const std::byte* block, std::int16_t (&out)[16]) {
    nibble_scales<8>(block + offsetof(BlockIQ2_S, scales), out);
  }
  [[gnu::always_inline]] static void part(const std::byte* block, std::size_t v, GridPart& out) {
    const unsigned high = read_at<std::uint16_t>(block + offsetof(BlockIQ2_S, high) + 2 * v);
    for (std::size_t g = 0; g < 8; ++g) {
      const unsigned low = byte_at(block + offsetof(BlockIQ2_S, q) + 8 * v + g);
      out.group[g] = iq2s_grid.at[low | (high >> 2 * g & 3u) << 8];
    }
    out.bits = read_at<std::uint64_t>(block + offsetof(BlockIQ2_S, signs) + 8 * v);
  }
};

struct FormatIQ3_XXS : SignedGrid<FormatIQ3_XXS, 8> {
  static constexpr std::size_t block_bytes = sizeof(BlockIQ3_XXS);
  static constexpr float unit = 0.25f;
  static std::uint32_t word(const std::byte* block, std::size_t s) {
    return read_at<std::uint32_t>(block + offsetof(BlockIQ3_XXS, words) + 4 * s);
  }
  [[gnu::always_inline]] static void scales(const std::byte* block, std::int16_t (&out)[8]) {
    for (std::size_t s = 0; s < 8; ++s) out[s] = word_scale(word(block, s));
  }
  [[gnu::always_inline]] static void part(const std::byte* block, std::size_t v, GridPart& out) {
    const std::byte* const q = block + offsetof(BlockIQ3_XXS, q) + 16 * v;
    for (std::size_t g = 0; g < 8; ++g)
      out.group[g] = iq3xxs_grid.at[byte_at(q + 2 * g)] |
                     static_cast<std::uint64_t>(iq3xxs_grid.at[byte_at(q + 2 * g + 1)]) << 32;
    out.bits = word_signs(word(block, 2 * v), word(block, 2 * v + 1));
  }
};

struct FormatIQ3_S : SignedGrid<FormatIQ3_S, 8> {
  static constexpr std::size_t block_bytes = sizeof(BlockIQ3_S);
  static constexpr float unit = 1.0f;
  [[gnu::always_inline]] static void scales(const std::byte* block, std::int16_t (&out)[8]) {
    nibble_scales<4>(block + offsetof(BlockIQ3_S, scales), out);
  }
  [[gnu::always_inline]] static void part(const std::byte* block, std::size_t v, GridPart& out) {
    const std::byte* const q = block + offsetof(BlockIQ3_S, q) + 16 * v;
    const unsigned high = read_at<std::uint16_t>(block + offsetof(BlockIQ3_S, high) + 2 * v);
    const auto entry = [&](std::size_t i) -> std::uint64_t {
      return iq3s_grid.at[byte_at(q + i) | (high >> i & 1u) << 8];
    };
    for (std::size_t g = 0; g < 8; ++g) out.group[g] = entry(2 * g) | entry(2 * g + 1) << 32;
    out.bits = read_at<std::uint64_t>(block + offsetof(BlockIQ3_S, signs) + 8 * v);
  }
};

// Grids of -1, 0, 1, eightfold, plus one, less two where a bit is set.
template <class Format, std::size_t scale_count>
struct ShiftedGrid : GridQuant<Format, scale_count> {
  static constexpr float unit = 0.125f;
  template <class Isa>
  [[gnu::always_inline]] static void codes(const std::byte* block, typename Isa::B64 (&out)[4]) {
    alignas(64) static constexpr Ones ones;
    for (std::size_t v = 0; v < 4; ++v) {
      GridPart part;
      Format::part(block, v, part);
      const auto eights = Isa::template bits_of<-3>(Isa::set8(part.group), 0xf8);
      out[v] = Isa::add_where(Isa::or_b(eights, Isa::load_b64(ones.at)), part.bits, 0xfe);
    }
  }

 private:
  struct Ones {
    std::byte at[64];
    constexpr Ones() : at{} {
      for (std::byte& one : at) one = std::byte{1};
    }
  };
};

struct FormatIQ1_S : ShiftedGrid<FormatIQ1_S, 8> {
  static constexpr std::size_t block_bytes = sizeof(BlockIQ1_S);
  static unsigned word(const std::byte* block, std::size_t s) {
    return read_at<std::uint16_t>(block + offsetof(BlockIQ1_S, high) + 2 * s);
  }
  [[gnu::always_inline]] static void scales(const std::byte* block, std::int16_t (&out)[8]) {
    for (std::size_t s = 0; s < 8; ++s)
      out[s] = static_cast<std::int16_t>(2 * (word(block, s) >> 12 & 7u) + 1);
  }
  [[gnu::always_inline]] static void part(const std::byte* block, std::size_t v, GridPart& out) {
    const unsigned front = word(block, 2 * v);
    const unsigned back = word(block, 2 * v + 1);
    for (std::size_t g = 0; g < 8; ++g) {
      const unsigned high = (g < 4 ? front : back) >> 3 * (g % 4) & 7u;
      out.group[g] = iq1s_grid.at[byte_at(block + offsetof(BlockIQ1_S, q) + 8 * v + g) | high << 8];
    }
    out.bits =
        (front >> 15 != 0 ? 0x00000000ffffffffu : 0) | (back >> 15 != 0 ? 0xffffffff00000000u : 0);
  }
};

struct FormatIQ1_M : ShiftedGrid<FormatIQ1_M, 16> {
  static constexpr std::size_t block_bytes = sizeof(BlockIQ1_M);
  static unsigned word(const std::byte* block, std::size_t i) {
    return read_at<std::uint16_t>(block + offsetof(BlockIQ1_M, scales) + 2 * i);
  }
  static std::int32_t d(const std::byte* block) {
    unsigned bits = 0;
    for (std::size_t i = 0; i < 4; ++i) bits |= word(block, i) >> 12 << 4 * i;
    return static_cast<std::int32_t>(bits);
  }
  [[gnu::always_inline]] static void scales(const std::byte* block, std::int16_t (&out)[16]) {
    for (std::size_t s = 0; s < 16; ++s)
      out[s] = static_cast<std::int16_t>(2 * (word(block, s / 4) >> 3 * (s % 4) & 7u) + 1);
  }
  [[gnu::always_inline]] static void part(const std::byte* block, std::size_t v, GridPart& out) {
    out.bits = 0;
    const auto nibbles = read_at<std::uint32_t>(block + offsetof(BlockIQ1_M, high) + 4 * v);
    for (std::size_t g = 0; g < 8; ++g) {
      const unsigned nibble = nibbles >> 4 * g & 15u;
      const unsigned low = byte_at(block + offsetof(BlockIQ1_M, q) + 8 * v + g);
      out.group[g] = iq1s_grid.at[low | (nibble & 7u) << 8];
      out.bits |= static_cast<std::uint64_t>(nibble >> 3) << 8 * g;
    }
    out.bits *= 0xff;  // one bit of each byte to all of it
  }
};

}  // namespace
}  // namespace millrace
