// What panels need beyond super-blocks in the AVX2 policy. Meanings: kernels/isa/README.md.
// Included by the panels of AVX2 and its extensions only.
#pragma once

#include "kernels/isa/avx2_super.h"

namespace millrace {
namespace {

template <class Base>
struct Avx2PanelOf : Base {
  using typename Base::B64;
  using typename Base::I32x16;
  static constexpr std::size_t panels = 1;
  static constexpr std::size_t panel_tokens = 4;
  static constexpr std::size_t turned_heads = 1;
  static constexpr std::size_t panel_super_tokens = 3;
  static constexpr std::size_t panel_float_tokens = 6;
  static constexpr std::size_t panel_tokens_min = 2;

  static void transpose_half(__m256i& a, __m256i& b, __m256i& c, __m256i& d) {
    const __m256i ab_low = _mm256_unpacklo_epi32(a, b);
    const __m256i ab_high = _mm256_unpackhi_epi32(a, b);
    const __m256i cd_low = _mm256_unpacklo_epi32(c, d);
    const __m256i cd_high = _mm256_unpackhi_epi32(c, d);
    a = _mm256_unpacklo_epi64(ab_low, cd_low);
    b = _mm256_unpackhi_epi64(ab_low, cd_low);
    c = _mm256_unpacklo_epi64(ab_high, cd_high);
    d = _mm256_unpackhi_epi64(ab_high, cd_high);
  }
  static void transpose_words(B64 (&v)[4]) {
    transpose_half(v[0].lo, v[1].lo, v[2].lo, v[3].lo);
    transpose_half(v[0].hi, v[1].hi, v[2].hi, v[3].hi);
  }
  static void transpose_lanes(B64 (&v)[4]) {
    const auto low = [](__m256i a, __m256i b) { return _mm256_permute2x128_si256(a, b, 0x20); };
    const auto high = [](__m256i a, __m256i b) { return _mm256_permute2x128_si256(a, b, 0x31); };
    const B64 out[4] = {{low(v[0].lo, v[1].lo), low(v[2].lo, v[3].lo)},
                        {high(v[0].lo, v[1].lo), high(v[2].lo, v[3].lo)},
                        {low(v[0].hi, v[1].hi), low(v[2].hi, v[3].hi)},
                        {high(v[0].hi, v[1].hi), high(v[2].hi, v[3].hi)}};
    for (int i = 0; i < 4; ++i) v[i] = out[i];
  }
  static I32x16 dot4_i(const I32x16& sum, const B64& w, const B64& a) {
    return {_mm256_add_epi32(sum.lo, Base::dot_i_half(w.lo, a.lo)),
            _mm256_add_epi32(sum.hi, Base::dot_i_half(w.hi, a.hi))};
  }
  // Sums of pairs in 16 bits.
  using Products = B64;
  static constexpr std::size_t products_steps(unsigned largest) {
    const unsigned most = 32767u / (2 * 127 * largest);
    return most >= 8 ? 8 : most >= 4 ? 4 : most >= 2 ? 2 : 1;
  }
  static Products begin_products(const I32x16& /*sum*/) {
    return {_mm256_setzero_si256(), _mm256_setzero_si256()};
  }
  static Products add_products(const Products& products, const B64& u, const B64& a) {
    return {_mm256_add_epi16(products.lo, _mm256_maddubs_epi16(u.lo, a.lo)),
            _mm256_add_epi16(products.hi, _mm256_maddubs_epi16(u.hi, a.hi))};
  }
  static I32x16 end_products(const I32x16& sum, const Products& products) {
    const __m256i ones = _mm256_set1_epi16(1);
    return {_mm256_add_epi32(sum.lo, _mm256_madd_epi16(products.lo, ones)),
            _mm256_add_epi32(sum.hi, _mm256_madd_epi16(products.hi, ones))};
  }
};
using Avx2Panel = Avx2PanelOf<Avx2Super>;

}  // namespace
}  // namespace millrace
