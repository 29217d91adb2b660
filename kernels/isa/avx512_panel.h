// What panels need beyond super-blocks in the AVX-512 policy. Meanings: kernels/isa/README.md.
// Included by the panels of AVX-512 and its extensions only.
#pragma once

#include "kernels/isa/avx512_super.h"

namespace millrace {
namespace {

template <class Base>
struct Avx512PanelOf : Base {
  using typename Base::B64;
  using typename Base::I32x16;
  static constexpr std::size_t panels = 2;
  static constexpr std::size_t panel_tokens = 6;
  static constexpr std::size_t turned_heads = 4;
  static constexpr std::size_t panel_super_tokens = 6;
  static constexpr std::size_t panel_float_tokens = 12;
  static constexpr std::size_t panel_tokens_min = 2;

  static void transpose_words(B64 (&v)[4]) {
    const __m512i front_low = _mm512_unpacklo_epi32(v[0], v[1]);
    const __m512i front_high = _mm512_unpackhi_epi32(v[0], v[1]);
    const __m512i back_low = _mm512_unpacklo_epi32(v[2], v[3]);
    const __m512i back_high = _mm512_unpackhi_epi32(v[2], v[3]);
    v[0] = _mm512_unpacklo_epi64(front_low, back_low);
    v[1] = _mm512_unpackhi_epi64(front_low, back_low);
    v[2] = _mm512_unpacklo_epi64(front_high, back_high);
    v[3] = _mm512_unpackhi_epi64(front_high, back_high);
  }
  static void transpose_lanes(B64 (&v)[4]) {
    const __m512i front_low = _mm512_shuffle_i32x4(v[0], v[1], 0x44);
    const __m512i front_high = _mm512_shuffle_i32x4(v[0], v[1], 0xee);
    const __m512i back_low = _mm512_shuffle_i32x4(v[2], v[3], 0x44);
    const __m512i back_high = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
    v[0] = _mm512_shuffle_i32x4(front_low, back_low, 0x88);
    v[1] = _mm512_shuffle_i32x4(front_low, back_low, 0xdd);
    v[2] = _mm512_shuffle_i32x4(front_high, back_high, 0x88);
    v[3] = _mm512_shuffle_i32x4(front_high, back_high, 0xdd);
  }
  static I32x16 dot4_i(I32x16 sum, B64 w, B64 a) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(Base::signed_pairs(w, a), _mm512_set1_epi16(1)));
  }
  // Sums of pairs in 16 bits.
  using Products = __m512i;
  static constexpr std::size_t products_steps(unsigned largest) {
    const unsigned most = 32767u / (2 * 127 * largest);
    return most >= 8 ? 8 : most >= 4 ? 4 : most >= 2 ? 2 : 1;
  }
  static Products begin_products(I32x16 /*sum*/) { return _mm512_setzero_si512(); }
  static Products add_products(Products products, B64 u, B64 a) {
    return _mm512_add_epi16(products, _mm512_maddubs_epi16(u, a));
  }
  static I32x16 end_products(I32x16 sum, Products products) {
    return _mm512_add_epi32(sum, _mm512_madd_epi16(products, _mm512_set1_epi16(1)));
  }
};
using Avx512Panel = Avx512PanelOf<Avx512Super>;

}  // namespace
}  // namespace millrace
