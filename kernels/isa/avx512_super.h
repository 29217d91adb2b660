// What super-blocks need beyond an AVX-512 policy. Meanings: kernels/isa/README.md. Included by the
// super-block tables of AVX-512 and its extensions only.
#pragma once

#include "kernels/isa/avx512.h"

namespace millrace {
namespace {

template <class Base>
struct Avx512SuperOf : Base {
  using Base::load_b16;
  using Base::load_b64;
  using Base::with_sign_of;
  using typename Base::B64;
  using typename Base::F32x16;
  using typename Base::I32x16;
  static constexpr bool wide_registers = true;

  // Into L1, where others prefetch into L2 (measured: kernels/README.md).
  [[gnu::always_inline]] static void prefetch(const std::byte* p) {
    _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T0);
  }

  // --- 64 bytes ---
  static B64 load_rows(const std::byte* const (&rows)[4], std::size_t offset) {
    const __m256i front = _mm256_inserti128_si256(
        _mm256_castsi128_si256(load_b16(rows[0] + offset)), load_b16(rows[1] + offset), 1);
    const __m256i back = _mm256_inserti128_si256(_mm256_castsi128_si256(load_b16(rows[2] + offset)),
                                                 load_b16(rows[3] + offset), 1);
    return _mm512_inserti64x4(_mm512_castsi256_si512(front), back, 1);
  }
  static __m256i load_32(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static B64 load_pieces(const void* front, const void* back) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(load_32(front)), load_32(back), 1);
  }
  static void load_halves(const std::byte* p, B64& front, B64& back) {
    const __m512i first = load_b64(p);
    const __m512i second = load_b64(p + 64);
    front = _mm512_shuffle_i64x2(first, second, 0x88);
    back = _mm512_shuffle_i64x2(first, second, 0xdd);
  }
  static B64 shift_by_lane(B64 a) {
    return _mm512_srlv_epi64(a, _mm512_setr_epi64(0, 0, 2, 2, 4, 4, 6, 6));
  }
  static B64 load_and_high(const std::byte* p) {
    const __m256i x = load_32(p);
    return _mm512_inserti64x4(_mm512_castsi256_si512(x), _mm256_srli_epi16(x, 4), 1);
  }
  static void store_b64(void* p, B64 a) { _mm512_storeu_si512(p, a); }
  static B64 or_b(B64 a, B64 b) { return _mm512_or_si512(a, b); }
  template <int shift>
  static B64 bits_of(B64 a, std::uint8_t mask) {
    const __m512i m = _mm512_set1_epi8(static_cast<char>(mask));
    if constexpr (shift > 0) return _mm512_and_si512(_mm512_srli_epi16(a, shift), m);
    else if constexpr (shift < 0) return _mm512_and_si512(_mm512_slli_epi16(a, -shift), m);
    else return _mm512_and_si512(a, m);
  }
  static B64 shuffle(B64 a, B64 index) { return _mm512_shuffle_epi8(a, index); }
  template <int lane>
  static B64 spread_lanes(B64 a, B64 b) {
    return _mm512_shuffle_i32x4(a, b, lane * 0x55);
  }
  static B64 set8(const std::uint64_t (&words)[8]) {
    const auto at = [&words](int i) { return static_cast<long long>(words[i]); };
    return _mm512_setr_epi64(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
  }
  static B64 add_where(B64 a, std::uint64_t bits, std::uint8_t value) {
    return _mm512_mask_add_epi8(a, bits, a, _mm512_set1_epi8(static_cast<char>(value)));
  }
  static B64 negate_where(B64 a, std::uint64_t bits) {
    return _mm512_mask_sub_epi8(a, bits, _mm512_setzero_si512(), a);
  }
  static I32x16 words(B64 a) { return a; }
  static B64 bytes(I32x16 a) { return a; }

  // --- 32 words of 16 bits in 64 bytes ---
  static B64 widen_low(B64 a) { return _mm512_srai_epi16(_mm512_unpacklo_epi8(a, a), 8); }
  static B64 widen_high(B64 a) { return _mm512_srai_epi16(_mm512_unpackhi_epi8(a, a), 8); }
  static B64 add_w(B64 a, std::int16_t b) { return _mm512_add_epi16(a, _mm512_set1_epi16(b)); }
  static B64 pair_sums(const std::int16_t* p) {
    const auto* at = reinterpret_cast<const std::byte*>(p);
    return Base::table_b64(_mm_hadd_epi16(load_b16(at), load_b16(at + 16)));
  }
  static void store_words(std::int16_t* p, I32x16 a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a));
  }

  // --- dots ---
  static I32x16 madd(B64 a, B64 b) { return _mm512_madd_epi16(a, b); }
  static I32x16 multiply_add(I32x16 acc, B64 u, B64 a, B64 scale) {
    return _mm512_add_epi32(acc, _mm512_madd_epi16(_mm512_maddubs_epi16(u, a), scale));
  }
  static I32x16 multiply_add_signed(I32x16 acc, B64 w, B64 a, B64 abs_a, B64 scale) {
    return multiply_add(acc, abs_a, with_sign_of(w, a), scale);
  }

  static I32x16 dot_signed(B64 w_lo, B64 a_lo, B64 abs_lo, B64 w_hi, B64 a_hi, B64 abs_hi) {
    return _mm512_add_epi32(Base::dot_small(w_lo, a_lo, abs_lo),
                            Base::dot_small(w_hi, a_hi, abs_hi));
  }

  // --- four rows by four blocks (or tokens) ---
  template <int a, int b, int c, int d>
  static I32x16 spread_words(I32x16 x) {
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(a, a + 4, a + 8, a + 12, b, b + 4, b + 8, b + 12, c, c + 4, c + 8, c + 12,
                          d, d + 4, d + 8, d + 12),
        x);
  }
  template <int a, int b, int c, int d>
  static I32x16 byte_of_each(I32x16 x) {
    constexpr int u[4] = {24 - 8 * a, 24 - 8 * b, 24 - 8 * c, 24 - 8 * d};
    return _mm512_srai_epi32(
        _mm512_sllv_epi32(x, _mm512_setr_epi32(u[0], u[0], u[0], u[0], u[1], u[1], u[1], u[1], u[2],
                                               u[2], u[2], u[2], u[3], u[3], u[3], u[3])),
        24);
  }
  template <int low, int high>
  static __m512i fold_lanes_i(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, low), _mm512_shuffle_i32x4(a, b, high));
  }
  static I32x16 reduce_lanes(const I32x16 (&f)[4]) {
    const __m512i front = fold_lanes_i<0x44, 0xee>(f[0], f[1]);
    const __m512i back = fold_lanes_i<0x44, 0xee>(f[2], f[3]);
    return fold_lanes_i<0x88, 0xdd>(front, back);
  }
  template <int word>
  static I32x16 pick_words(const I32x16 (&h)[4]) {
    if constexpr (word < 2) {
      const __m512i front = _mm512_unpacklo_epi32(h[0], h[1]);
      const __m512i back = _mm512_unpacklo_epi32(h[2], h[3]);
      return word == 0 ? _mm512_unpacklo_epi64(front, back) : _mm512_unpackhi_epi64(front, back);
    } else {
      const __m512i front = _mm512_unpackhi_epi32(h[0], h[1]);
      const __m512i back = _mm512_unpackhi_epi32(h[2], h[3]);
      return word == 2 ? _mm512_unpacklo_epi64(front, back) : _mm512_unpackhi_epi64(front, back);
    }
  }
  static F32x16 half_words(I32x16 a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }
  template <int a, int b, int c, int d>
  static I32x16 pick_each(I32x16 x) {
    return _mm512_shuffle_epi32(x, static_cast<_MM_PERM_ENUM>(a | b << 2 | c << 4 | d << 6));
  }
  static I32x16 repeat4_i(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
    return _mm512_set4_epi32(static_cast<int>(d), static_cast<int>(c), static_cast<int>(b),
                             static_cast<int>(a));
  }
  static F32x16 swap_twos(F32x16 a) { return _mm512_permute_ps(a, 0x4e); }
  static F32x16 repeat4(const float* p) { return _mm512_broadcast_f32x4(_mm_loadu_ps(p)); }
};

using Avx512Super = Avx512SuperOf<Avx512>;

}  // namespace
}  // namespace millrace
