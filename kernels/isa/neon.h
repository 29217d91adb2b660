// NEON as every aarch64 CPU has it: 16 lanes are four registers. Meanings: kernels/isa/README.md.
// Included by the tables of NEON and its extensions only.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace millrace {
namespace {

struct Neon {
  static constexpr const char* name = "neon";
  static constexpr std::size_t matvec_rows = 4;
  static constexpr std::size_t tile_rows = 2;
  static constexpr std::size_t tile_tokens = 2;

  struct F32x16 {
    float32x4_t v[4];
  };
  struct I32x16 {
    int32x4_t v[4];
  };
  struct Mask16 {
    uint32x4_t v[4];  // all ones where it holds
  };
  using B16 = uint8x16_t;
  struct B64 {
    uint8x16_t v[4];
  };

  template <class Function>
  [[gnu::always_inline]] static F32x16 map(Function function) {
    return {{function(0), function(1), function(2), function(3)}};
  }
  template <class Function>
  [[gnu::always_inline]] static I32x16 map_i(Function function) {
    return {{function(0), function(1), function(2), function(3)}};
  }
  template <class Function>
  [[gnu::always_inline]] static Mask16 map_m(Function function) {
    return {{function(0), function(1), function(2), function(3)}};
  }
  template <class Function>
  [[gnu::always_inline]] static B64 map_b(Function function) {
    return {{function(0), function(1), function(2), function(3)}};
  }
  static int8x16_t s8(uint8x16_t a) { return vreinterpretq_s8_u8(a); }
  static int16x8_t s16(uint8x16_t a) { return vreinterpretq_s16_u8(a); }
  static uint32x4_t u32(int32x4_t a) { return vreinterpretq_u32_s32(a); }
  static int32x4_t s32(uint32x4_t a) { return vreinterpretq_s32_u32(a); }

  // --- float ---
  static F32x16 zero() { return set1(0.0f); }
  static F32x16 set1(float x) {
    const float32x4_t all = vdupq_n_f32(x);
    return {{all, all, all, all}};
  }
  static F32x16 load(const float* p) {
    return map([=](int i) { return vld1q_f32(p + 4 * i); });
  }
  static F32x16 load_first(const float* p, std::size_t lanes) {
    float padded[16] = {};
    std::memcpy(padded, p, lanes * sizeof(float));
    return load(padded);
  }
  static void store(float* p, const F32x16& a) {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
  }
  static void store_first(float* p, const F32x16& a, std::size_t lanes) {
    float all[16];
    store(all, a);
    std::memcpy(p, all, lanes * sizeof(float));
  }
  static F32x16 add(const F32x16& a, const F32x16& b) {
    return map([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
  }
  static F32x16 sub(const F32x16& a, const F32x16& b) {
    return map([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
  }
  static F32x16 mul(const F32x16& a, const F32x16& b) {
    return map([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
  }
  static F32x16 div(const F32x16& a, const F32x16& b) {
    return map([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
  }
  static F32x16 sqrt(const F32x16& a) {
    return map([&](int i) { return vsqrtq_f32(a.v[i]); });
  }
  static F32x16 fma(const F32x16& a, const F32x16& b, const F32x16& c) {
    return map([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
  }
  // FMIN and FMAX treat NaN and zeros of two signs in another way.
  static float32x4_t smaller(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
  }
  static float32x4_t larger(float32x4_t a, float32x4_t b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
  }
  static F32x16 min(const F32x16& a, const F32x16& b) {
    return map([&](int i) { return smaller(a.v[i], b.v[i]); });
  }
  static F32x16 max(const F32x16& a, const F32x16& b) {
    return map([&](int i) { return larger(a.v[i], b.v[i]); });
  }
  static Mask16 less(const F32x16& a, const F32x16& b) {
    return map_m([&](int i) { return vcltq_f32(a.v[i], b.v[i]); });
  }
  static Mask16 equal(const F32x16& a, const F32x16& b) {
    return map_m([&](int i) { return vceqq_f32(a.v[i], b.v[i]); });
  }
  static F32x16 select(const Mask16& m, const F32x16& a, const F32x16& b) {
    return map([&](int i) { return vbslq_f32(m.v[i], a.v[i], b.v[i]); });
  }
  static bool any(const Mask16& m) {
    return vmaxvq_u32(vorrq_u32(vorrq_u32(m.v[0], m.v[1]), vorrq_u32(m.v[2], m.v[3]))) != 0;
  }
  static bool all(const Mask16& m) {
    return vminvq_u32(vandq_u32(vandq_u32(m.v[0], m.v[1]), vandq_u32(m.v[2], m.v[3]))) != 0;
  }
  // The first two steps of the tree: lanes i and i + 8, then i + 4.
  static float32x4_t sum_by_4(const F32x16& a) {
    return vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3]));
  }
  static float tree_sum(const F32x16& a) {
    const float32x4_t by4 = sum_by_4(a);
    const float32x2_t by2 = vadd_f32(vget_low_f32(by4), vget_high_f32(by4));
    return vget_lane_f32(by2, 0) + vget_lane_f32(by2, 1);
  }
  static float tree_max(const F32x16& a) {
    const float32x4_t by4 = larger(larger(a.v[0], a.v[2]), larger(a.v[1], a.v[3]));
    const float32x4_t by2 = larger(by4, vextq_f32(by4, by4, 2));
    return vgetq_lane_f32(larger(by2, vextq_f32(by2, by2, 1)), 0);
  }
  static F32x16 swap_pairs(const F32x16& a) {
    return map([&](int i) { return vrev64q_f32(a.v[i]); });
  }
  static F32x16 load_pairs(const float* p) {
    const float32x4_t front = vld1q_f32(p);
    const float32x4_t back = vld1q_f32(p + 4);
    return {{vzip1q_f32(front, front), vzip2q_f32(front, front), vzip1q_f32(back, back),
             vzip2q_f32(back, back)}};
  }
  static F32x16 load_pairs_first(const float* p, std::size_t pairs) {
    float padded[8] = {};
    std::memcpy(padded, p, pairs * sizeof(float));
    return load_pairs(padded);
  }
  static F32x16 negate_even(const F32x16& a) {
    const uint32x4_t sign = {0x80000000u, 0, 0x80000000u, 0};
    return map([&](int i) {
      return vreinterpretq_f32_u32(veorq_u32(vreinterpretq_u32_f32(a.v[i]), sign));
    });
  }

  // --- half precision ---
  static float32x4_t from_half(uint16x4_t a) { return vcvt_f32_f16(vreinterpret_f16_u16(a)); }
  static float half_to_float(std::uint32_t half) {
    return vgetq_lane_f32(from_half(vdup_n_u16(static_cast<std::uint16_t>(half))), 0);
  }
  static F32x16 load_f16(const std::uint16_t* p) {
    return map([=](int i) { return from_half(vld1_u16(p + 4 * i)); });
  }
  static F32x16 load_f16_first(const std::uint16_t* p, std::size_t lanes) {
    std::uint16_t padded[16] = {};
    std::memcpy(padded, p, lanes * sizeof padded[0]);
    return load_f16(padded);
  }
  static F32x16 load_bf16(const std::uint16_t* p) {
    return map([=](int i) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p + 4 * i), 16)); });
  }
  static F32x16 load_bf16_first(const std::uint16_t* p, std::size_t lanes) {
    std::uint16_t padded[16] = {};
    std::memcpy(padded, p, lanes * sizeof padded[0]);
    return load_bf16(padded);
  }
  static void store_f16(std::uint16_t* p, const F32x16& a) {
    for (int i = 0; i < 4; ++i) vst1_u16(p + 4 * i, vreinterpret_u16_f16(vcvt_f16_f32(a.v[i])));
  }
  static void store_f16_first(std::uint16_t* p, const F32x16& a, std::size_t lanes) {
    std::uint16_t half[16];
    store_f16(half, a);
    std::memcpy(p, half, lanes * sizeof half[0]);
  }

  // --- 32-bit integers, wrapping ---
  static I32x16 zero_i() { return set1_i(0); }
  static I32x16 set1_i(std::int32_t x) {
    const int32x4_t all = vdupq_n_s32(x);
    return {{all, all, all, all}};
  }
  static I32x16 load_i(const std::int32_t* p) {
    return map_i([=](int i) { return vld1q_s32(p + 4 * i); });
  }
  static I32x16 load_first_i(const std::int32_t* p, std::size_t lanes) {
    std::int32_t padded[16] = {};
    std::memcpy(padded, p, lanes * sizeof padded[0]);
    return load_i(padded);
  }
  static void store_i(std::int32_t* p, const I32x16& a) {
    for (int i = 0; i < 4; ++i) vst1q_s32(p + 4 * i, a.v[i]);
  }
  static void store_first_i(std::int32_t* p, const I32x16& a, std::size_t lanes) {
    std::int32_t all[16];
    store_i(all, a);
    std::memcpy(p, all, lanes * sizeof all[0]);
  }
  static I32x16 add_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return vaddq_s32(a.v[i], b.v[i]); });
  }
  static I32x16 sub_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return vsubq_s32(a.v[i], b.v[i]); });
  }
  static I32x16 mul_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return vmulq_s32(a.v[i], b.v[i]); });
  }
  static I32x16 and_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return vandq_s32(a.v[i], b.v[i]); });
  }
  static I32x16 or_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return vorrq_s32(a.v[i], b.v[i]); });
  }
  static I32x16 xor_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return veorq_s32(a.v[i], b.v[i]); });
  }
  template <int n>
  static I32x16 shl_i(const I32x16& a) {
    return map_i([&](int i) { return vshlq_n_s32(a.v[i], n); });
  }
  template <int n>
  static I32x16 shr_i(const I32x16& a) {
    return map_i([&](int i) { return s32(vshrq_n_u32(u32(a.v[i]), n)); });
  }
  template <int n>
  static I32x16 sra_i(const I32x16& a) {
    return map_i([&](int i) { return vshrq_n_s32(a.v[i], n); });
  }
  static I32x16 max_i(const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return vmaxq_s32(a.v[i], b.v[i]); });
  }
  static std::int32_t sum_i(const I32x16& a) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
  }
  static std::int32_t tree_max_i(const I32x16& a) {
    return vmaxvq_s32(vmaxq_s32(vmaxq_s32(a.v[0], a.v[1]), vmaxq_s32(a.v[2], a.v[3])));
  }
  static Mask16 equal_i(const I32x16& a, const I32x16& b) {
    return map_m([&](int i) { return vceqq_s32(a.v[i], b.v[i]); });
  }
  static Mask16 less_i(const I32x16& a, const I32x16& b) {
    return map_m([&](int i) { return vcltq_s32(a.v[i], b.v[i]); });
  }
  static I32x16 select_i(const Mask16& m, const I32x16& a, const I32x16& b) {
    return map_i([&](int i) { return vbslq_s32(m.v[i], a.v[i], b.v[i]); });
  }

  // --- conversions ---
  static F32x16 to_f32(const I32x16& a) {
    return map([&](int i) { return vcvtq_f32_s32(a.v[i]); });
  }
  static I32x16 to_i32(const F32x16& a) {
    return map_i([&](int i) { return vcvtnq_s32_f32(a.v[i]); });
  }
  static I32x16 bits(const F32x16& a) {
    return map_i([&](int i) { return vreinterpretq_s32_f32(a.v[i]); });
  }
  static F32x16 from_bits(const I32x16& a) {
    return map([&](int i) { return vreinterpretq_f32_s32(a.v[i]); });
  }

  // --- 16 bytes ---
  static uint8x16_t load_16(const void* p) { return vld1q_u8(static_cast<const std::uint8_t*>(p)); }
  static B16 load_b16(const std::byte* p) { return load_16(p); }
  static B16 low_nibbles(B16 a) { return vandq_u8(a, vdupq_n_u8(15)); }
  static B16 high_nibbles(B16 a) { return vshrq_n_u8(a, 4); }
  static B16 lookup16(B16 table, B16 codes) { return vqtbl1q_u8(table, codes); }
  static uint8x16_t bit_of_byte() { return vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201u)); }
  template <int byte>
  static B16 add_where_bits(B16 a, B16 b, std::uint8_t value) {
    const uint8x16_t twice = vcombine_u8(vdup_n_u8(byte), vdup_n_u8(byte + 1));
    const uint8x16_t set = vtstq_u8(vqtbl1q_u8(b, twice), bit_of_byte());
    return vaddq_u8(a, vandq_u8(set, vdupq_n_u8(value)));
  }
  static B16 low_halves(B16 a, B16 b) { return vcombine_u8(vget_low_u8(a), vget_low_u8(b)); }
  static B16 high_halves(B16 a, B16 b) { return vcombine_u8(vget_high_u8(a), vget_high_u8(b)); }
  static I32x16 u8_to_i32(B16 a) {
    const uint16x8_t front = vmovl_u8(vget_low_u8(a));
    const uint16x8_t back = vmovl_high_u8(a);
    return {{s32(vmovl_u16(vget_low_u16(front))), s32(vmovl_high_u16(front)),
             s32(vmovl_u16(vget_low_u16(back))), s32(vmovl_high_u16(back))}};
  }
  static F32x16 i8_to_f32(B16 a) {
    const int16x8_t front = vmovl_s8(vget_low_s8(s8(a)));
    const int16x8_t back = vmovl_high_s8(s8(a));
    return to_f32({{vmovl_s16(vget_low_s16(front)), vmovl_high_s16(front),
                    vmovl_s16(vget_low_s16(back)), vmovl_high_s16(back)}});
  }
  static void store_i8(std::int8_t* p, const I32x16& a) {
    const int16x8_t front = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
    const int16x8_t back = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
    vst1q_s8(p, vcombine_s8(vmovn_s16(front), vmovn_s16(back)));
  }

  // --- 64 bytes, in four lanes of 16 ---
  static B64 load_b64(const void* p) {
    const auto* from = static_cast<const std::uint8_t*>(p);
    return map_b([=](int i) { return vld1q_u8(from + 16 * i); });
  }
  template <std::size_t stride>
  static B64 load_quad(const std::byte* p) {
    return map_b([=](int i) { return load_16(p + stride * static_cast<std::size_t>(i)); });
  }
  static B64 low_nibbles(const B64& a) {
    return map_b([&](int i) { return low_nibbles(a.v[i]); });
  }
  static B64 high_nibbles(const B64& a) {
    return map_b([&](int i) { return high_nibbles(a.v[i]); });
  }
  static B64 flip_sign(const B64& a) {
    return map_b([&](int i) { return veorq_u8(a.v[i], vdupq_n_u8(0x80)); });
  }
  static B64 table_b64(B16 a) { return {{a, a, a, a}}; }
  static B64 lookup16(const B64& table, const B64& codes) {
    return map_b([&](int i) { return vqtbl1q_u8(table.v[i], codes.v[i]); });
  }
  template <int byte>
  static B64 add_where_bits(const B64& a, const B64& b, std::uint8_t value) {
    return map_b([&](int i) { return add_where_bits<byte>(a.v[i], b.v[i], value); });
  }
  static B64 low_halves(const B64& a, const B64& b) {
    return map_b([&](int i) { return low_halves(a.v[i], b.v[i]); });
  }
  static B64 high_halves(const B64& a, const B64& b) {
    return map_b([&](int i) { return high_halves(a.v[i], b.v[i]); });
  }
  static uint16x8_t u16(uint8x16_t a) { return vreinterpretq_u16_u8(a); }
  static uint8x16_t u8(uint16x8_t a) { return vreinterpretq_u8_u16(a); }
  static void transpose_bytes(B64 (&v)[4]) {
    for (int j = 0; j < 4; ++j) {
      const uint16x8_t front_low = u16(vzip1q_u8(v[0].v[j], v[1].v[j]));
      const uint16x8_t front_high = u16(vzip2q_u8(v[0].v[j], v[1].v[j]));
      const uint16x8_t back_low = u16(vzip1q_u8(v[2].v[j], v[3].v[j]));
      const uint16x8_t back_high = u16(vzip2q_u8(v[2].v[j], v[3].v[j]));
      v[0].v[j] = u8(vzip1q_u16(front_low, back_low));
      v[1].v[j] = u8(vzip2q_u16(front_low, back_low));
      v[2].v[j] = u8(vzip1q_u16(front_high, back_high));
      v[3].v[j] = u8(vzip2q_u16(front_high, back_high));
    }
  }
  static B64 spread4(const std::int8_t* p) {
    std::uint32_t word;
    std::memcpy(&word, p, sizeof word);
    const uint8x16_t all = vreinterpretq_u8_u32(vdupq_n_u32(word));
    return {{all, all, all, all}};
  }
  static B64 magnitudes(const B64& a) {
    return map_b([&](int i) { return vreinterpretq_u8_s8(vabsq_s8(s8(a.v[i]))); });
  }

  // --- dots ---
  static int16x8_t low_products(uint8x16_t w, uint8x16_t a) {
    return vmull_s8(vget_low_s8(s8(w)), vget_low_s8(s8(a)));
  }
  static int16x8_t high_products(uint8x16_t w, uint8x16_t a) { return vmull_high_s8(s8(w), s8(a)); }
  static int16x8_t add_low_products(int16x8_t sum, uint8x16_t w, uint8x16_t a) {
    return vmlal_s8(sum, vget_low_s8(s8(w)), vget_low_s8(s8(a)));
  }
  static int16x8_t add_high_products(int16x8_t sum, uint8x16_t w, uint8x16_t a) {
    return vmlal_high_s8(sum, s8(w), s8(a));
  }
  // Four products of at most 64 * 127 fit in 16 bits.
  static I32x16 dot_u(const B64& u_lo, const B64& a_lo, const B64& u_hi, const B64& a_hi) {
    return map_i([&](int i) {
      const int16x8_t front =
          add_low_products(low_products(u_lo.v[i], a_lo.v[i]), u_hi.v[i], a_hi.v[i]);
      const int16x8_t back =
          add_high_products(high_products(u_lo.v[i], a_lo.v[i]), u_hi.v[i], a_hi.v[i]);
      return vpaddlq_s16(vpaddq_s16(front, back));
    });
  }
  static constexpr std::int32_t signed_bias = 0;
  // Two products of at most 128 * 127 do.
  static I32x16 dot_i(const B64& w_lo, const B64& a_lo, const B64& w_hi, const B64& a_hi) {
    return map_i([&](int i) {
      const int16x8_t front =
          add_low_products(low_products(w_lo.v[i], a_lo.v[i]), w_hi.v[i], a_hi.v[i]);
      const int16x8_t back =
          add_high_products(high_products(w_lo.v[i], a_lo.v[i]), w_hi.v[i], a_hi.v[i]);
      return vpaddq_s32(vpaddlq_s16(front), vpaddlq_s16(back));
    });
  }
  static I32x16 dot_biased(const B64& w_lo, const B64& a_lo, const B64& w_hi, const B64& a_hi) {
    return dot_i(w_lo, a_lo, w_hi, a_hi);
  }
  static I32x16 dot_small(const B64& w, const B64& a, const B64&) {
    return map_i([&](int i) {
      return vpaddlq_s16(vpaddq_s16(low_products(w.v[i], a.v[i]), high_products(w.v[i], a.v[i])));
    });
  }

  // --- groups of 16 blocks ---
  struct Q8Group {
    B64 lo[4];
    B64 hi[4];
  };
  static Q8Group load_group(const std::int8_t* q) {
    const auto* bytes = reinterpret_cast<const std::byte*>(q);
    Q8Group out;
    for (int quad = 0; quad < 4; ++quad) {
      out.lo[quad] = load_quad<32>(bytes + 128 * quad);
      out.hi[quad] = load_quad<32>(bytes + 128 * quad + 16);
    }
    return out;
  }
  static I32x16 reduce_quads(const I32x16 (&p)[4]) {
    return map_i([&](int i) {
      return vpaddq_s32(vpaddq_s32(p[0].v[i], p[1].v[i]), vpaddq_s32(p[2].v[i], p[3].v[i]));
    });
  }
  template <std::size_t stride>
  static I32x16 gather_u8(const std::byte* p) {
    const auto at = [p](std::size_t block) {
      return std::to_integer<std::uint8_t>(p[block * stride]);
    };
    return u8_to_i32(B16{at(0), at(4), at(8), at(12), at(1), at(5), at(9), at(13), at(2), at(6),
                         at(10), at(14), at(3), at(7), at(11), at(15)});
  }
  template <std::size_t stride>
  static F32x16 gather_f16(const std::byte* p) {
    const auto at = [p](std::size_t block) {
      std::uint16_t word;
      std::memcpy(&word, p + block * stride, sizeof word);
      return word;
    };
    return map([&](int lane) {
      const auto j = static_cast<std::size_t>(lane);
      return from_half(uint16x4_t{at(j), at(4 + j), at(8 + j), at(12 + j)});
    });
  }
  static int32x4_t low_pairs(int32x4_t a, int32x4_t b) {
    return vcombine_s32(vget_low_s32(a), vget_low_s32(b));
  }
  static int32x4_t high_pairs(int32x4_t a, int32x4_t b) {
    return vcombine_s32(vget_high_s32(a), vget_high_s32(b));
  }
  static I32x16 group_order_i(const I32x16& a) {
    const int32x4_t even_front = vtrn1q_s32(a.v[0], a.v[1]);
    const int32x4_t odd_front = vtrn2q_s32(a.v[0], a.v[1]);
    const int32x4_t even_back = vtrn1q_s32(a.v[2], a.v[3]);
    const int32x4_t odd_back = vtrn2q_s32(a.v[2], a.v[3]);
    return {{low_pairs(even_front, even_back), low_pairs(odd_front, odd_back),
             high_pairs(even_front, even_back), high_pairs(odd_front, odd_back)}};
  }
  static F32x16 group_order(const F32x16& a) { return from_bits(group_order_i(bits(a))); }
  static F32x16 first_blocks(const F32x16& a, std::size_t n) {
    const int32x4_t count = vdupq_n_s32(static_cast<std::int32_t>(n));
    return map([&](int lane) {
      const int32x4_t block = {lane, 4 + lane, 8 + lane, 12 + lane};
      return vreinterpretq_f32_u32(
          vandq_u32(vreinterpretq_u32_f32(a.v[lane]), vcltq_s32(block, count)));
    });
  }

  // --- exp and attention ---
  static F32x16 scale_by_power(const F32x16& x, const F32x16& power) {
    const I32x16 n = to_i32(power);
    const I32x16 half = sra_i<1>(n);
    const auto two_to = [](const I32x16& e) { return from_bits(shl_i<23>(add_i(e, set1_i(127)))); };
    return mul(mul(x, two_to(half)), two_to(sub_i(n, half)));  // the first product is exact
  }
  static constexpr std::size_t attention_tile = 4;
  static constexpr std::size_t attention_heads = 2;
  // Each step adds the two halves of what is left of two vectors, in tree_sum's order.
  static float32x4_t fold_lanes(float32x4_t a, float32x4_t b) {
    return vaddq_f32(vcombine_f32(vget_low_f32(a), vget_low_f32(b)),
                     vcombine_f32(vget_high_f32(a), vget_high_f32(b)));
  }
  static void tree_sums(const F32x16 (&v)[attention_tile], float* out) {
    vst1q_f32(out, vpaddq_f32(fold_lanes(sum_by_4(v[0]), sum_by_4(v[1])),
                              fold_lanes(sum_by_4(v[2]), sum_by_4(v[3]))));
  }

  // --- memory ---
  // Always inline: a function that only prefetches looks pure, and GCC drops calls to it.
  [[gnu::always_inline]] static void prefetch(const std::byte* p) { __builtin_prefetch(p, 0, 2); }
  static uint64x2_t load_words(const std::byte* p) { return vreinterpretq_u64_u8(load_16(p)); }
  static std::uint64_t read_all(const std::byte* data, std::size_t bytes) {
    uint64x2_t sum[4] = {vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0), vdupq_n_u64(0)};
    std::size_t at = 0;
    for (; at + 64 <= bytes; at += 64)
      for (std::size_t i = 0; i < 4; ++i)
        sum[i] = vaddq_u64(sum[i], load_words(data + at + 16 * i));
    std::uint64_t total =
        vaddvq_u64(vaddq_u64(vaddq_u64(sum[0], sum[1]), vaddq_u64(sum[2], sum[3])));
    for (; at < bytes; at += 8) {
      std::uint64_t word;
      std::memcpy(&word, data + at, sizeof word);
      total += word;
    }
    return total;
  }
};

}  // namespace
}  // namespace millrace
