// What super-blocks need beyond a NEON policy. Meanings: kernels/isa/README.md. Included by the
// super-block tables of NEON and its extensions only.
#pragma once

#include "kernels/isa/neon.h"

namespace millrace {
namespace {

template <class Base>
struct NeonSuperOf : Base {
  using Base::bit_of_byte;
  using Base::high_products;
  using Base::load_16;
  using Base::low_products;
  using Base::map;
  using Base::map_b;
  using Base::map_i;
  using Base::s16;
  using Base::s8;
  using typename Base::B64;
  using typename Base::F32x16;
  using typename Base::I32x16;

  // --- 64 bytes ---
  static B64 load_rows(const std::byte* const (&rows)[4], std::size_t offset) {
    return map_b([&](int i) { return load_16(rows[i] + offset); });
  }
  static const std::byte* at(const void* p) { return static_cast<const std::byte*>(p); }
  static B64 load_pieces(const void* front, const void* back) {
    return {{load_16(front), load_16(at(front) + 16), load_16(back), load_16(at(back) + 16)}};
  }
  static void load_halves(const std::byte* p, B64& front, B64& back) {
    front = Base::template load_quad<32>(p);
    back = Base::template load_quad<32>(p + 16);
  }
  static B64 shift_by_lane(const B64& a) {
    return {{a.v[0], vshrq_n_u8(a.v[1], 2), vshrq_n_u8(a.v[2], 4), vshrq_n_u8(a.v[3], 6)}};
  }
  static B64 load_and_high(const std::byte* p) {
    const uint8x16_t front = load_16(p);
    const uint8x16_t back = load_16(p + 16);
    return {{front, back, vshrq_n_u8(front, 4), vshrq_n_u8(back, 4)}};
  }
  static void store_b64(void* p, const B64& a) {
    for (int i = 0; i < 4; ++i) vst1q_u8(static_cast<std::uint8_t*>(p) + 16 * i, a.v[i]);
  }
  static B64 or_b(const B64& a, const B64& b) {
    return map_b([&](int i) { return vorrq_u8(a.v[i], b.v[i]); });
  }
  template <int shift>
  static uint8x16_t shifted(uint8x16_t a) {
    if constexpr (shift > 0) return vshrq_n_u8(a, shift);
    else if constexpr (shift < 0) return vshlq_n_u8(a, -shift);
    else return a;
  }
  template <int shift>
  static B64 bits_of(const B64& a, std::uint8_t mask) {
    return map_b([&](int i) { return vandq_u8(shifted<shift>(a.v[i]), vdupq_n_u8(mask)); });
  }
  static B64 shuffle(const B64& a, const B64& index) {
    return map_b([&](int i) { return vqtbl1q_u8(a.v[i], index.v[i]); });
  }
  template <int lane>
  static B64 spread_lanes(const B64& a, const B64& b) {
    return {{a.v[lane], a.v[lane], b.v[lane], b.v[lane]}};
  }
  static B64 set8(const std::uint64_t (&words)[8]) {
    return map_b([&](int i) {
      return vreinterpretq_u8_u64(uint64x2_t{words[2 * i], words[2 * i + 1]});
    });
  }
  // All ones in the bytes whose bit is set.
  static B64 bit_masks(std::uint64_t bits) {
    const uint8x16_t all = vreinterpretq_u8_u64(vdupq_n_u64(bits));
    return map_b([&](int i) {
      const auto byte = static_cast<std::uint8_t>(2 * i);
      const uint8x16_t spread =
          vcombine_u8(vdup_n_u8(byte), vdup_n_u8(static_cast<std::uint8_t>(byte + 1)));
      return vtstq_u8(vqtbl1q_u8(all, spread), bit_of_byte());
    });
  }
  static B64 add_where(const B64& a, std::uint64_t bits, std::uint8_t value) {
    const B64 mask = bit_masks(bits);
    return map_b([&](int i) { return vaddq_u8(a.v[i], vandq_u8(mask.v[i], vdupq_n_u8(value))); });
  }
  static B64 negate_where(const B64& a, std::uint64_t bits) {
    const B64 mask = bit_masks(bits);
    return map_b([&](int i) { return vsubq_u8(veorq_u8(a.v[i], mask.v[i]), mask.v[i]); });
  }
  static I32x16 words(const B64& a) {
    return map_i([&](int i) { return vreinterpretq_s32_u8(a.v[i]); });
  }
  static B64 bytes(const I32x16& a) {
    return map_b([&](int i) { return vreinterpretq_u8_s32(a.v[i]); });
  }

  // --- 32 words of 16 bits in 64 bytes ---
  static uint8x16_t of_words(int16x8_t a) { return vreinterpretq_u8_s16(a); }
  static B64 widen_low(const B64& a) {
    return map_b([&](int i) { return of_words(vmovl_s8(vget_low_s8(s8(a.v[i])))); });
  }
  static B64 widen_high(const B64& a) {
    return map_b([&](int i) { return of_words(vmovl_high_s8(s8(a.v[i]))); });
  }
  static B64 add_w(const B64& a, std::int16_t b) {
    return map_b([&](int i) { return of_words(vaddq_s16(s16(a.v[i]), vdupq_n_s16(b))); });
  }
  static B64 pair_sums(const std::int16_t* p) {
    return Base::table_b64(of_words(vpaddq_s16(vld1q_s16(p), vld1q_s16(p + 8))));
  }
  static void store_words(std::int16_t* p, const I32x16& a) {
    for (int i = 0; i < 4; ++i) vst1_s16(p + 4 * i, vmovn_s32(a.v[i]));
  }

  // --- dots ---
  static int32x4_t madd_lane(int16x8_t a, int16x8_t b) {
    return vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b));
  }
  static I32x16 madd(const B64& a, const B64& b) {
    return map_i([&](int i) { return madd_lane(s16(a.v[i]), s16(b.v[i])); });
  }
  static I32x16 multiply_add(const I32x16& acc, const B64& w, const B64& a, const B64& scale) {
    return map_i([&](int i) {
      const int16x8_t pairs =
          vpaddq_s16(low_products(w.v[i], a.v[i]), high_products(w.v[i], a.v[i]));
      const int16x8_t s = s16(scale.v[i]);
      const int32x4_t sum = vmlal_s16(acc.v[i], vget_low_s16(pairs), vget_low_s16(s));
      return vmlal_high_s16(sum, pairs, s);
    });
  }
  static I32x16 multiply_add_signed(const I32x16& acc, const B64& w, const B64& a, const B64&,
                                    const B64& scale) {
    return multiply_add(acc, w, a, scale);
  }
  static I32x16 dot_signed(const B64& w_lo, const B64& a_lo, const B64&, const B64& w_hi,
                           const B64& a_hi, const B64&) {
    return Base::dot_i(w_lo, a_lo, w_hi, a_hi);
  }

  // --- four rows by four blocks (or tokens) ---
  template <int word>
  static int32x4_t column(int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d) {
    if constexpr (word % 2 == 0) {
      const int32x4_t front = vtrn1q_s32(a, b);
      const int32x4_t back = vtrn1q_s32(c, d);
      return word == 0 ? Base::low_pairs(front, back) : Base::high_pairs(front, back);
    } else {
      const int32x4_t front = vtrn2q_s32(a, b);
      const int32x4_t back = vtrn2q_s32(c, d);
      return word == 1 ? Base::low_pairs(front, back) : Base::high_pairs(front, back);
    }
  }
  template <int a, int b, int c, int d>
  static I32x16 spread_words(const I32x16& x) {
    return {{column<a>(x.v[0], x.v[1], x.v[2], x.v[3]), column<b>(x.v[0], x.v[1], x.v[2], x.v[3]),
             column<c>(x.v[0], x.v[1], x.v[2], x.v[3]), column<d>(x.v[0], x.v[1], x.v[2], x.v[3])}};
  }
  template <int byte>
  static int32x4_t signed_byte(int32x4_t x) {
    return vshrq_n_s32(vshlq_n_s32(x, 24 - 8 * byte), 24);
  }
  template <int a, int b, int c, int d>
  static I32x16 byte_of_each(const I32x16& x) {
    return {{signed_byte<a>(x.v[0]), signed_byte<b>(x.v[1]), signed_byte<c>(x.v[2]),
             signed_byte<d>(x.v[3])}};
  }
  static I32x16 reduce_lanes(const I32x16 (&f)[4]) {
    return map_i([&](int i) {
      return vaddq_s32(vaddq_s32(f[i].v[0], f[i].v[1]), vaddq_s32(f[i].v[2], f[i].v[3]));
    });
  }
  template <int word>
  static I32x16 pick_words(const I32x16 (&h)[4]) {
    return map_i([&](int i) { return column<word>(h[0].v[i], h[1].v[i], h[2].v[i], h[3].v[i]); });
  }
  static F32x16 half_words(const I32x16& a) {
    return map([&](int i) { return Base::from_half(vreinterpret_u16_s16(vmovn_s32(a.v[i]))); });
  }
  template <int a, int b, int c, int d>
  static I32x16 pick_each(const I32x16& x) {
    return map_i([&](int i) { return __builtin_shufflevector(x.v[i], x.v[i], a, b, c, d); });
  }
  static I32x16 repeat4_i(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
    const int32x4_t x = Base::s32(uint32x4_t{a, b, c, d});
    return {{x, x, x, x}};
  }
  static F32x16 swap_twos(const F32x16& a) {
    return map([&](int i) { return vextq_f32(a.v[i], a.v[i], 2); });
  }
  static F32x16 repeat4(const float* p) {
    const float32x4_t x = vld1q_f32(p);
    return {{x, x, x, x}};
  }
};

using NeonSuper = NeonSuperOf<Neon>;

}  // namespace
}  // namespace millrace
