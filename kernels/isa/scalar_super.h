// What super-blocks need beyond the scalar policy, and the definition of it. Meanings:
// kernels/isa/README.md. Included by super_scalar.cpp only.
#pragma once

#include "kernels/isa/scalar.h"

namespace millrace {
namespace {

struct ScalarSuper : Scalar {
  // --- 64 bytes ---
  static B64 load_rows(const std::byte* const (&rows)[4], std::size_t offset) {
    B64 out;
    for (int r = 0; r < 4; ++r) std::memcpy(out.v + 16 * r, rows[r] + offset, 16);
    return out;
  }
  static B64 load_pieces(const void* front, const void* back) {
    B64 out;
    std::memcpy(out.v, front, 32);
    std::memcpy(out.v + 32, back, 32);
    return out;
  }
  static void load_halves(const std::byte* p, B64& front, B64& back) {
    front = load_quad<32>(p);
    back = load_quad<32>(p + 16);
  }
  static B64 shift_by_lane(const B64& a) {
    return map_b([&](int i) { return a.v[i] >> 2 * (i / 16); });
  }
  static B64 load_and_high(const std::byte* p) {
    return map_b([&](int i) { return std::to_integer<int>(p[i % 32]) >> (i < 32 ? 0 : 4); });
  }
  static void store_b64(void* p, const B64& a) { std::memcpy(p, a.v, sizeof a.v); }
  static B64 or_b(const B64& a, const B64& b) {
    return map_b([&](int i) { return a.v[i] | b.v[i]; });
  }
  template <int shift>
  static B64 bits_of(const B64& a, std::uint8_t mask) {
    return map_b([&](int i) {
      return (shift < 0 ? a.v[i] << (shift < 0 ? -shift : 0) : a.v[i] >> (shift < 0 ? 0 : shift)) &
             mask;
    });
  }
  static B64 shuffle(const B64& a, const B64& index) {
    return map_b(
        [&](int i) { return index.v[i] < 128 ? a.v[i / 16 * 16 + (index.v[i] & 15)] : 0; });
  }
  template <int lane>
  static B64 spread_lanes(const B64& a, const B64& b) {
    return map_b([&](int i) { return (i < 32 ? a : b).v[16 * lane + i % 16]; });
  }
  static B64 set8(const std::uint64_t (&words)[8]) {
    B64 out;
    std::memcpy(out.v, words, sizeof out.v);
    return out;
  }
  static B64 add_where(const B64& a, std::uint64_t bits, std::uint8_t value) {
    return map_b([&](int i) { return a.v[i] + ((bits >> i & 1) != 0 ? value : 0); });
  }
  static B64 negate_where(const B64& a, std::uint64_t bits) {
    return map_b([&](int i) { return (bits >> i & 1) != 0 ? -a.v[i] : a.v[i]; });
  }
  static I32x16 words(const B64& a) { return __builtin_bit_cast(I32x16, a); }
  static B64 bytes(const I32x16& a) { return __builtin_bit_cast(B64, a); }

  // --- 32 words of 16 bits in 64 bytes ---
  static std::int32_t i16(const B64& a, int i) {
    std::int16_t word;
    std::memcpy(&word, a.v + 2 * i, sizeof word);
    return word;
  }
  template <class Function>
  [[gnu::always_inline]] static B64 map_w(Function function) {
    B64 out;
    for (int i = 0; i < 32; ++i) {
      const auto word = static_cast<std::int16_t>(function(i));
      std::memcpy(out.v + 2 * i, &word, sizeof word);
    }
    return out;
  }
  static B64 widen_low(const B64& a) {
    return map_w([&](int i) { return i8(a.v[i / 8 * 16 + i % 8]); });
  }
  static B64 widen_high(const B64& a) {
    return map_w([&](int i) { return i8(a.v[i / 8 * 16 + 8 + i % 8]); });
  }
  static B64 add_w(const B64& a, std::int16_t b) {
    return map_w([&](int i) { return i16(a, i) + b; });
  }
  static B64 pair_sums(const std::int16_t* p) {
    return map_w([&](int i) { return p[2 * (i % 8)] + p[2 * (i % 8) + 1]; });
  }
  static void store_words(std::int16_t* p, const I32x16& a) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int16_t>(a.v[i]);
  }

  // --- dots ---
  static I32x16 madd(const B64& a, const B64& b) {
    return map_i([&](int i) {
      return i16(a, 2 * i) * i16(b, 2 * i) + i16(a, 2 * i + 1) * i16(b, 2 * i + 1);
    });
  }
  template <class Product>
  [[gnu::always_inline]] static I32x16 scaled_sums(const I32x16& acc, const B64& scale,
                                                   Product product) {
    return map_i([&](int lane) {
      const int i = 4 * lane;
      return u32(acc.v[lane]) + u32((product(i) + product(i + 1)) * i16(scale, 2 * lane)) +
             u32((product(i + 2) + product(i + 3)) * i16(scale, 2 * lane + 1));
    });
  }
  static I32x16 multiply_add(const I32x16& acc, const B64& u, const B64& a, const B64& scale) {
    return scaled_sums(acc, scale, [&](int i) { return u.v[i] * i8(a.v[i]); });
  }
  static I32x16 multiply_add_signed(const I32x16& acc, const B64& w, const B64& a, const B64&,
                                    const B64& scale) {
    return scaled_sums(acc, scale, [&](int i) { return i8(w.v[i]) * i8(a.v[i]); });
  }

  static I32x16 dot_signed(const B64& w_lo, const B64& a_lo, const B64&, const B64& w_hi,
                           const B64& a_hi, const B64&) {
    return dot_i(w_lo, a_lo, w_hi, a_hi);
  }

  // --- four rows by four blocks (or tokens) ---
  template <int a, int b, int c, int d>
  static I32x16 spread_words(const I32x16& x) {
    constexpr int word[4] = {a, b, c, d};
    return map_i([&](int i) { return x.v[i % 4 * 4 + word[i / 4]]; });
  }
  template <int a, int b, int c, int d>
  static I32x16 byte_of_each(const I32x16& x) {
    constexpr int byte[4] = {a, b, c, d};
    return map_i([&](int i) { return static_cast<std::int8_t>(x.v[i] >> 8 * byte[i / 4]); });
  }
  static I32x16 reduce_lanes(const I32x16 (&f)[4]) {
    return map_i([&](int i) {
      const std::int32_t* v = f[i / 4].v + i % 4;
      return v[0] + v[4] + v[8] + v[12];
    });
  }
  template <int word>
  static I32x16 pick_words(const I32x16 (&h)[4]) {
    return map_i([&](int i) { return h[i % 4].v[i / 4 * 4 + word]; });
  }
  static F32x16 half_words(const I32x16& a) {
    return map([&](int i) { return half_to_float(u32(a.v[i]) & 0xffffu); });
  }
  template <int a, int b, int c, int d>
  static I32x16 pick_each(const I32x16& x) {
    constexpr int from[4] = {a, b, c, d};
    return map_i([&](int i) { return x.v[i / 4 * 4 + from[i % 4]]; });
  }
  static I32x16 repeat4_i(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
    const std::uint32_t each[4] = {a, b, c, d};
    return map_i([&](int i) { return each[i % 4]; });
  }
  static F32x16 swap_twos(const F32x16& a) {
    return map([&](int i) { return a.v[i ^ 2]; });
  }
  static F32x16 repeat4(const float* p) {
    return map([&](int i) { return p[i % 4]; });
  }
};

}  // namespace
}  // namespace millrace
