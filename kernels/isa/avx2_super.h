// What super-blocks need beyond an AVX2 policy. Meanings: kernels/isa/README.md. Included by the
// super-block tables of AVX2 and its extensions only.
#pragma once

#include "kernels/isa/avx2.h"

namespace millrace {
namespace {

template <class Base>
struct Avx2SuperOf : Base {
  using Base::add_i;
  using Base::bit_of_byte;
  using Base::load_16;
  using Base::table_b64;
  using Base::two_lanes;
  using typename Base::B64;
  using typename Base::F32x16;
  using typename Base::I32x16;

  // --- 64 bytes ---
  static B64 load_rows(const std::byte* const (&rows)[4], std::size_t offset) {
    return {two_lanes(rows[0] + offset, rows[1] + offset),
            two_lanes(rows[2] + offset, rows[3] + offset)};
  }
  static __m256i load_32(const void* p) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
  }
  static B64 load_pieces(const void* front, const void* back) {
    return {load_32(front), load_32(back)};
  }
  static void load_halves(const std::byte* p, B64& front, B64& back) {
    front = Base::template load_quad<32>(p);
    back = Base::template load_quad<32>(p + 16);
  }
  static B64 shift_by_lane(const B64& a) {
    return {_mm256_srlv_epi64(a.lo, _mm256_setr_epi64x(0, 0, 2, 2)),
            _mm256_srlv_epi64(a.hi, _mm256_setr_epi64x(4, 4, 6, 6))};
  }
  static B64 load_and_high(const std::byte* p) {
    const __m256i x = load_32(p);
    return {x, _mm256_srli_epi16(x, 4)};
  }
  static void store_b64(void* p, const B64& a) {
    _mm256_storeu_si256(static_cast<__m256i*>(p), a.lo);
    _mm256_storeu_si256(static_cast<__m256i*>(p) + 1, a.hi);
  }
  static B64 or_b(const B64& a, const B64& b) {
    return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)};
  }
  template <int shift>
  static __m256i shifted(__m256i a) {
    if constexpr (shift > 0) return _mm256_srli_epi16(a, shift);
    else if constexpr (shift < 0) return _mm256_slli_epi16(a, -shift);
    else return a;
  }
  template <int shift>
  static B64 bits_of(const B64& a, std::uint8_t mask) {
    const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
    return {_mm256_and_si256(shifted<shift>(a.lo), m), _mm256_and_si256(shifted<shift>(a.hi), m)};
  }
  static B64 shuffle(const B64& a, const B64& index) {
    return {_mm256_shuffle_epi8(a.lo, index.lo), _mm256_shuffle_epi8(a.hi, index.hi)};
  }
  template <int lane>
  static __m256i spread(const B64& a) {
    return _mm256_permute4x64_epi64(lane < 2 ? a.lo : a.hi, lane % 2 == 0 ? 0x44 : 0xee);
  }
  template <int lane>
  static B64 spread_lanes(const B64& a, const B64& b) {
    return {spread<lane>(a), spread<lane>(b)};
  }
  static __m256i set4(const std::uint64_t* words) {
    const auto at = [words](int i) { return static_cast<long long>(words[i]); };
    return _mm256_setr_epi64x(at(0), at(1), at(2), at(3));
  }
  static B64 set8(const std::uint64_t (&words)[8]) { return {set4(words), set4(words + 4)}; }
  // All ones in the bytes whose bit is set.
  static __m256i bit_mask(std::uint32_t bits) {
    const __m256i spread =
        _mm256_setr_epi64x(0, 0x0101010101010101ll, 0x0202020202020202ll, 0x0303030303030303ll);
    const __m256i bit = _mm256_broadcastsi128_si256(bit_of_byte());
    const __m256i all = _mm256_set1_epi32(static_cast<int>(bits));
    return _mm256_cmpeq_epi8(_mm256_and_si256(_mm256_shuffle_epi8(all, spread), bit), bit);
  }
  static B64 bit_masks(std::uint64_t bits) {
    return {bit_mask(static_cast<std::uint32_t>(bits)),
            bit_mask(static_cast<std::uint32_t>(bits >> 32))};
  }
  static B64 add_where(const B64& a, std::uint64_t bits, std::uint8_t value) {
    const B64 mask = bit_masks(bits);
    const __m256i v = _mm256_set1_epi8(static_cast<char>(value));
    return {_mm256_add_epi8(a.lo, _mm256_and_si256(mask.lo, v)),
            _mm256_add_epi8(a.hi, _mm256_and_si256(mask.hi, v))};
  }
  static B64 negate_where(const B64& a, std::uint64_t bits) {
    const B64 mask = bit_masks(bits);
    return {_mm256_sub_epi8(_mm256_xor_si256(a.lo, mask.lo), mask.lo),
            _mm256_sub_epi8(_mm256_xor_si256(a.hi, mask.hi), mask.hi)};
  }
  static I32x16 words(const B64& a) { return {a.lo, a.hi}; }
  static B64 bytes(const I32x16& a) { return {a.lo, a.hi}; }

  // --- 32 words of 16 bits in 64 bytes ---
  static B64 widen_low(const B64& a) {
    return {_mm256_srai_epi16(_mm256_unpacklo_epi8(a.lo, a.lo), 8),
            _mm256_srai_epi16(_mm256_unpacklo_epi8(a.hi, a.hi), 8)};
  }
  static B64 widen_high(const B64& a) {
    return {_mm256_srai_epi16(_mm256_unpackhi_epi8(a.lo, a.lo), 8),
            _mm256_srai_epi16(_mm256_unpackhi_epi8(a.hi, a.hi), 8)};
  }
  static B64 add_w(const B64& a, std::int16_t b) {
    const __m256i x = _mm256_set1_epi16(b);
    return {_mm256_add_epi16(a.lo, x), _mm256_add_epi16(a.hi, x)};
  }
  static B64 pair_sums(const std::int16_t* p) {
    return table_b64(_mm_hadd_epi16(load_16(p), load_16(p + 8)));
  }
  static void store_words(std::int16_t* p, const I32x16& a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8));
  }

  // --- dots ---
  static I32x16 madd(const B64& a, const B64& b) {
    return {_mm256_madd_epi16(a.lo, b.lo), _mm256_madd_epi16(a.hi, b.hi)};
  }
  static I32x16 multiply_add(const I32x16& acc, const B64& u, const B64& a, const B64& scale) {
    return add_i(acc,
                 madd({_mm256_maddubs_epi16(u.lo, a.lo), _mm256_maddubs_epi16(u.hi, a.hi)}, scale));
  }
  static I32x16 multiply_add_signed(const I32x16& acc, const B64& w, const B64& a, const B64& abs_a,
                                    const B64& scale) {
    return multiply_add(acc, abs_a, {_mm256_sign_epi8(w.lo, a.lo), _mm256_sign_epi8(w.hi, a.hi)},
                        scale);
  }

  static I32x16 dot_signed(const B64& w_lo, const B64& a_lo, const B64& abs_lo, const B64& w_hi,
                           const B64& a_hi, const B64& abs_hi) {
    return add_i(Base::dot_small(w_lo, a_lo, abs_lo), Base::dot_small(w_hi, a_hi, abs_hi));
  }

  // --- four rows by four blocks (or tokens) ---
  template <int a, int b, int c, int d>
  static I32x16 spread_words(const I32x16& x) {
    static_assert(a < 2 && b < 2 && c < 2 && d < 2);
    // Rows 0 2 and then 1 3, words 0 and 1 of each.
    const __m256i pairs = _mm256_unpacklo_epi32(x.lo, x.hi);
    return {_mm256_permutevar8x32_epi32(
                pairs, _mm256_setr_epi32(2 * a, 2 * a + 4, 2 * a + 1, 2 * a + 5, 2 * b, 2 * b + 4,
                                         2 * b + 1, 2 * b + 5)),
            _mm256_permutevar8x32_epi32(
                pairs, _mm256_setr_epi32(2 * c, 2 * c + 4, 2 * c + 1, 2 * c + 5, 2 * d, 2 * d + 4,
                                         2 * d + 1, 2 * d + 5))};
  }
  template <int a, int b>
  static __m256i byte_of_both(__m256i x) {
    constexpr int front = 24 - 8 * a;
    constexpr int back = 24 - 8 * b;
    const __m256i up = _mm256_setr_epi32(front, front, front, front, back, back, back, back);
    return _mm256_srai_epi32(_mm256_sllv_epi32(x, up), 24);
  }
  template <int a, int b, int c, int d>
  static I32x16 byte_of_each(const I32x16& x) {
    return {byte_of_both<a, b>(x.lo), byte_of_both<c, d>(x.hi)};
  }
  static __m256i add_halves(const I32x16& a) { return _mm256_add_epi32(a.lo, a.hi); }
  static __m256i reduce_two(const I32x16& a, const I32x16& b) {
    const __m256i x = add_halves(a);
    const __m256i y = add_halves(b);
    return _mm256_add_epi32(_mm256_permute2x128_si256(x, y, 0x20),
                            _mm256_permute2x128_si256(x, y, 0x31));
  }
  static I32x16 reduce_lanes(const I32x16 (&f)[4]) {
    return {reduce_two(f[0], f[1]), reduce_two(f[2], f[3])};
  }
  template <int word>
  static __m256i pick_half(__m256i a, __m256i b, __m256i c, __m256i d) {
    if constexpr (word < 2) {
      const __m256i front = _mm256_unpacklo_epi32(a, b);
      const __m256i back = _mm256_unpacklo_epi32(c, d);
      return word == 0 ? _mm256_unpacklo_epi64(front, back) : _mm256_unpackhi_epi64(front, back);
    } else {
      const __m256i front = _mm256_unpackhi_epi32(a, b);
      const __m256i back = _mm256_unpackhi_epi32(c, d);
      return word == 2 ? _mm256_unpacklo_epi64(front, back) : _mm256_unpackhi_epi64(front, back);
    }
  }
  template <int word>
  static I32x16 pick_words(const I32x16 (&h)[4]) {
    return {pick_half<word>(h[0].lo, h[1].lo, h[2].lo, h[3].lo),
            pick_half<word>(h[0].hi, h[1].hi, h[2].hi, h[3].hi)};
  }
  static __m256 half_words8(__m256i a) {
    const __m256i low = _mm256_and_si256(a, _mm256_set1_epi32(0xffff));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
  }
  static F32x16 half_words(const I32x16& a) { return {half_words8(a.lo), half_words8(a.hi)}; }
  template <int a, int b, int c, int d>
  static I32x16 pick_each(const I32x16& x) {
    constexpr int order = a | b << 2 | c << 4 | d << 6;
    return {_mm256_shuffle_epi32(x.lo, order), _mm256_shuffle_epi32(x.hi, order)};
  }
  static I32x16 repeat4_i(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
    const __m256i x = _mm256_broadcastsi128_si256(_mm_setr_epi32(
        static_cast<int>(a), static_cast<int>(b), static_cast<int>(c), static_cast<int>(d)));
    return {x, x};
  }
  static F32x16 swap_twos(const F32x16& a) {
    return {_mm256_permute_ps(a.lo, 0x4e), _mm256_permute_ps(a.hi, 0x4e)};
  }
  static F32x16 repeat4(const float* p) {
    const __m256 x = _mm256_broadcast_ps(reinterpret_cast<const __m128*>(p));
    return {x, x};
  }

  // --- rows in order ---
  static __m256i pair_sums_both(__m256i u_lo, __m256i a_lo, __m256i u_hi, __m256i a_hi) {
    return _mm256_add_epi16(_mm256_maddubs_epi16(u_lo, a_lo), _mm256_maddubs_epi16(u_hi, a_hi));
  }
  static I32x16 multiply_add_both(const I32x16& acc, const B64& u_lo, const B64& a_lo,
                                  const B64& u_hi, const B64& a_hi, const B64& scale) {
    return Base::add_i(acc, madd({pair_sums_both(u_lo.lo, a_lo.lo, u_hi.lo, a_hi.lo),
                                  pair_sums_both(u_lo.hi, a_lo.hi, u_hi.hi, a_hi.hi)},
                                 scale));
  }
  static B64 and_b(const B64& a, const B64& b) {
    return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
  }
  static B64 mul_w(const B64& a, const B64& b) {
    return {_mm256_mullo_epi16(a.lo, b.lo), _mm256_mullo_epi16(a.hi, b.hi)};
  }
  template <int n>
  static B64 shr_w(const B64& a) {
    return {_mm256_srli_epi16(a.lo, n), _mm256_srli_epi16(a.hi, n)};
  }
  template <int n>
  static B64 weigh_pairs(const B64& a, const B64& weights) {
    return shr_w<n>(
        {_mm256_maddubs_epi16(a.lo, weights.lo), _mm256_maddubs_epi16(a.hi, weights.hi)});
  }
  using FourSums = __m256i;  // in two parts each
  static FourSums four_zeros() { return _mm256_setzero_si256(); }
  static FourSums four_sums(const I32x16 (&p)[4]) {
    return Base::fold64(Base::fold32(add_halves(p[0]), add_halves(p[1])),
                        Base::fold32(add_halves(p[2]), add_halves(p[3])));
  }
  static __m256i add_parts(const FourSums& a, const FourSums& b) {
    return _mm256_add_epi32(_mm256_permute2x128_si256(a, b, 0x20),
                            _mm256_permute2x128_si256(a, b, 0x31));
  }
  static I32x16 join_sums(const FourSums (&f)[4]) {
    return Base::group_order_i({add_parts(f[0], f[1]), add_parts(f[2], f[3])});
  }
};
using Avx2Super = Avx2SuperOf<Avx2>;

}  // namespace
}  // namespace millrace
