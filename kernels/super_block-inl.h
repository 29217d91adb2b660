// Super-blocks of 256 values over an ISA policy: what a format says about its layout, one row's
// products of one super-block, and decoding. Integer sub-scales are multiplied in before anything
// is summed to float: see the canonical arithmetic in kernel_table.h. Rows come in fours: lane r of
// a header belongs to row r.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace {
namespace {

inline constexpr std::size_t super_values = 256;
inline constexpr std::size_t super_rows = 4;

// Which of the 16 units of 16 values lies in lane j of the four code vectors v. Whatever costs the
// format least; the activations are loaded to match.
enum class SuperLayout {
  natural,  // 4v + j
  halves,   // 2v, 2v + 1, 8 + 2v, 9 + 2v: bit fields of bytes that serve 128 values
  columns,  // v + 4j
  turns,    // every other unit: 0 2 4 6, 1 3 5 7, 8 10 12 14, 9 11 13 15
};

constexpr std::size_t unit_at(SuperLayout layout, std::size_t vector, std::size_t lane) {
  switch (layout) {
    case SuperLayout::natural:
      return 4 * vector + lane;
    case SuperLayout::halves:
      return 8 * (lane / 2) + 2 * vector + lane % 2;
    case SuperLayout::columns:
      return 4 * lane + vector;
    case SuperLayout::turns:
      return 8 * (vector / 2) + 2 * lane + vector % 2;
  }
  return 0;
}

// Formats with a scale per 32 values can be `paired`: vectors 2p and 2p + 1 hold the first and the
// last halves of the same four sub-blocks. Then dots are summed first and scaled afterwards, four
// rows together; the others multiply each pair of products by its scale.

// Policies with FourSums, or whose vectors are registers, take the rows of a matvec one after the
// other (matvec_super-inl.h). The former want a format's sub-scales as words.
template <class Isa>
inline constexpr bool has_four_sums = requires {
  typename Isa::FourSums;
};
template <class Isa>
inline constexpr bool rows_in_order = has_four_sums<Isa> || requires {
  Isa::wide_registers;
};

// Four rows' scales; a format fills what it uses.
template <class Isa>
struct SuperHeader {
  typename Isa::I32x16 words;          // Format::factor_word of lane r holds row r's d (and dmin)
  typename Isa::B64 scale[2];          // lane r: sub-scales 0..7, 8..15 of row r, 16 bits each
  typename Isa::B64 minimum[2];        // the same, of formats with minima
  typename Isa::I32x16 pair_scale[2];  // paired: 4j + r: row r's sub-scale of lane j in pair p
};

// One token's activations of one super-block, in the format's layout.
template <class Isa>
struct SuperActivations {
  typename Isa::B64 q[4];
  typename Isa::B64 magnitude[4];  // only where codes are signed
  typename Isa::B64 sum[2];        // sums of the units of each sub-scale, in every lane
};

// For every byte of a code vector, the place of its sub-scale among the words of its lane.
template <SuperLayout layout, std::size_t sub_scales>
struct ScaleOrder {
  alignas(64) std::byte at[4][64];
  constexpr ScaleOrder() : at{} {
    for (std::size_t v = 0; v < 4; ++v) {
      for (std::size_t i = 0; i < 64; ++i) {
        const std::size_t unit = unit_at(layout, v, i / 16);
        const std::size_t scale = sub_scales == 8 ? unit / 2 : unit % 8;
        at[v][i] = static_cast<std::byte>(2 * scale + i % 2);
      }
    }
  }
};
template <SuperLayout layout, std::size_t sub_scales>
inline constexpr ScaleOrder<layout, sub_scales> scale_order;

// What is taken off each code: the format's own offset, and what the ISA wants added to signed
// ones.
template <class Isa, class Format>
inline constexpr std::int32_t code_offset = Format::code_offset + Format::template bias<Isa>;

// Whether the activations' sums are needed, for minima or offsets.
template <class Isa, class Format>
inline constexpr bool has_sums = Format::has_minima || code_offset<Isa, Format> != 0;

template <class Isa, class Format>
[[gnu::always_inline]] inline SuperActivations<Isa> load_super(const std::int8_t* q,
                                                               const std::int16_t* sum) {
  SuperActivations<Isa> out;
  for (std::size_t v = 0; v < 4; ++v) {
    if constexpr (Format::layout == SuperLayout::natural) {
      out.q[v] = Isa::load_b64(q + 64 * v);
    } else if constexpr (Format::layout == SuperLayout::halves) {
      out.q[v] = Isa::load_pieces(q + 32 * v, q + 128 + 32 * v);
    } else if constexpr (Format::layout == SuperLayout::columns) {
      out.q[v] = Isa::template load_quad<64>(reinterpret_cast<const std::byte*>(q) + 16 * v);
    } else {
      const auto* bytes = reinterpret_cast<const std::byte*>(q);
      out.q[v] = Isa::template load_quad<32>(bytes + 128 * (v / 2) + 16 * (v % 2));
    }
    if constexpr (Format::template signed_codes<Isa>) out.magnitude[v] = Isa::magnitudes(out.q[v]);
  }
  if constexpr (has_sums<Isa, Format>) {
    if constexpr (Format::sub_scales == 8) {
      out.sum[0] = Isa::pair_sums(sum);
    } else {
      const auto* bytes = reinterpret_cast<const std::byte*>(sum);
      for (std::size_t half = 0; half < 2; ++half)
        out.sum[half] = Isa::table_b64(Isa::load_b16(bytes + 16 * half));
    }
  }
  return out;
}

// One row's codes and, unless paired, its sub-scales: one for each pair of bytes.
template <class Isa>
struct SuperCodes {
  typename Isa::B64 code[4];
  typename Isa::B64 scale[4];
};

template <class Isa, class Format, int row>
[[gnu::always_inline]] inline SuperCodes<Isa> unpack_super(const std::byte* block,
                                                           const SuperHeader<Isa>& header) {
  SuperCodes<Isa> out;
  Format::template codes<Isa>(block, out.code);
  if constexpr (!Format::paired) {
    constexpr bool many = Format::sub_scales == 16;
    constexpr bool halves = Format::layout == SuperLayout::halves;
    for (std::size_t v = 0; v < 4; ++v) {
      // With 16 scales the lower and the upper 8 lie in different vectors: take the one that holds
      // this lane's unit.
      const auto& front = header.scale[many && !halves && v >= 2 ? 1 : 0];
      const auto& back = header.scale[many && (halves || v >= 2) ? 1 : 0];
      const auto order = Isa::load_b64(scale_order<Format::layout, Format::sub_scales>.at[v]);
      out.scale[v] = Isa::shuffle(Isa::template spread_lanes<row>(front, back), order);
    }
  }
  return out;
}

// A row's dots with one token: out[0] holds sixteen parts of the scaled sum; paired, out[p] four
// parts of each of pair p's sums, still to be scaled.
template <class Isa, class Format>
[[gnu::always_inline]] inline void dot_super(const SuperCodes<Isa>& w,
                                             const SuperActivations<Isa>& x,
                                             typename Isa::I32x16 (&out)[2]) {
  if constexpr (Format::paired) {
    for (std::size_t p = 0; p < 2; ++p) {
      const std::size_t lo = 2 * p;
      const std::size_t hi = lo + 1;
      if constexpr (Format::template signed_codes<Isa>) {
        out[p] = Isa::dot_signed(w.code[lo], x.q[lo], x.magnitude[lo], w.code[hi], x.q[hi],
                                 x.magnitude[hi]);
      } else {
        out[p] = Isa::dot_u(w.code[lo], x.q[lo], w.code[hi], x.q[hi]);
      }
    }
  } else {
    auto sum = Isa::zero_i();
    for (std::size_t v = 0; v < 4; ++v) {
      if constexpr (Format::template signed_codes<Isa>) {
        sum = Isa::multiply_add_signed(sum, w.code[v], x.q[v], x.magnitude[v], w.scale[v]);
      } else {
        sum = Isa::multiply_add(sum, w.code[v], x.q[v], w.scale[v]);
      }
    }
    out[0] = sum;
  }
}

// The scaled sums of four rows from their dots: lane 4j + r holds a part of row r's.
template <class Isa, class Format>
[[gnu::always_inline]] inline typename Isa::I32x16 join_dots(
    const typename Isa::I32x16 (&dots)[super_rows][2], const SuperHeader<Isa>& header) {
  const typename Isa::I32x16 first[4] = {dots[0][0], dots[1][0], dots[2][0], dots[3][0]};
  const auto sum = Isa::reduce_quads(first);
  if constexpr (!Format::paired) return sum;
  else {
    const typename Isa::I32x16 second[4] = {dots[0][1], dots[1][1], dots[2][1], dots[3][1]};
    return Isa::add_i(Isa::mul_i(sum, header.pair_scale[0]),
                      Isa::mul_i(Isa::reduce_quads(second), header.pair_scale[1]));
  }
}

// What minima (or the codes' common offset, whose "minima" are the sub-scales) add for four rows,
// in four parts a row.
template <class Isa, class Format>
[[gnu::always_inline]] inline typename Isa::I32x16 dot_minima(const SuperHeader<Isa>& header,
                                                              const typename Isa::B64 (&sum)[2]) {
  const auto& of = [&header]() -> const auto& {
    if constexpr (Format::has_minima) return header.minimum;
    else return header.scale;
  }
  ();
  auto total = Isa::madd(of[0], sum[0]);
  if constexpr (Format::sub_scales == 16) total = Isa::add_i(total, Isa::madd(of[1], sum[1]));
  return total;
}

// Values of one super-block: fl(d * scale * (code - offset) - dmin * minimum); both products are
// exact.
template <class Isa, class Format>
void decode_super(const std::byte* block, float* out) {
  const std::byte* const rows[4] = {block, block, block, block};
  SuperHeader<Isa> header;
  Format::template header<Isa>(rows, header);
  typename Isa::B64 codes[4];
  Format::template codes<Isa>(block, codes);
  const typename Isa::I32x16 same[4] = {header.words, header.words, header.words, header.words};
  const auto picked = Isa::template pick_words<Format::factor_word>(same);
  const auto factor = Format::template factors<Isa>(picked);
  alignas(64) std::int16_t scale[2][32];
  alignas(64) std::int16_t minimum[2][32];
  alignas(64) std::int32_t pair_scale[2][16];
  for (std::size_t i = 0; i < 2; ++i) {
    if constexpr (Format::paired) Isa::store_i(pair_scale[i], header.pair_scale[i]);
    else if (i < Format::sub_scales / 8) Isa::store_b64(scale[i], header.scale[i]);
    if constexpr (Format::has_minima)
      if (i < Format::sub_scales / 8) Isa::store_b64(minimum[i], header.minimum[i]);
  }
  const auto at = [](const std::int16_t(&words)[2][32], std::size_t unit) {
    const std::size_t i = Format::sub_scales == 8 ? unit / 2 : unit;
    return static_cast<float>(words[i / 8][i % 8]);
  };
  for (std::size_t v = 0; v < 4; ++v) {
    alignas(64) std::byte bytes[64];
    Isa::store_b64(bytes, Format::template bias<Isa> != 0 ? Isa::flip_sign(codes[v]) : codes[v]);
    for (std::size_t lane = 0; lane < 4; ++lane) {
      const std::size_t unit = unit_at(Format::layout, v, lane);
      float sub_scale;
      if constexpr (Format::paired) sub_scale = static_cast<float>(pair_scale[v / 2][4 * lane]);
      else sub_scale = at(scale, unit);
      auto x = Isa::i8_to_f32(Isa::load_b16(bytes + 16 * lane));
      if constexpr (Format::code_offset != 0)
        x = Isa::sub(x, Isa::set1(static_cast<float>(Format::code_offset)));
      x = Isa::mul(Isa::mul(factor, Isa::set1(sub_scale)), x);
      if constexpr (Format::has_minima) {
        const auto dmin = Format::template minimum_factors<Isa>(picked);
        x = Isa::sub(x, Isa::mul(dmin, Isa::set1(at(minimum, unit))));
      }
      Isa::store(out + 16 * unit, x);
    }
  }
}

}  // namespace
}  // namespace millrace
