// AVX2 with AVX-VNNI: products of bytes are summed to 32 bits in one instruction. Meanings:
// kernels/isa/README.md. Included by the tables of AVX-VNNI only.
#pragma once

#include "kernels/isa/avx2.h"

namespace millrace {
namespace {

struct AvxVnni : Avx2 {
  static constexpr const char* name = "avxvnni";

  static __m256i dot_u_half(__m256i u_lo, __m256i a_lo, __m256i u_hi, __m256i a_hi) {
    return _mm256_dpbusd_avx_epi32(_mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), u_lo, a_lo),
                                   u_hi, a_hi);
  }
  static I32x16 dot_u(const B64& u_lo, const B64& a_lo, const B64& u_hi, const B64& a_hi) {
    return {dot_u_half(u_lo.lo, a_lo.lo, u_hi.lo, a_hi.lo),
            dot_u_half(u_lo.hi, a_lo.hi, u_hi.hi, a_hi.hi)};
  }
  // w + 128 is unsigned; the caller takes 128 times the sum of a off again.
  static constexpr std::int32_t signed_bias = 128;
  static I32x16 dot_i(const B64& w_lo, const B64& a_lo, const B64& w_hi, const B64& a_hi) {
    return dot_u(flip_sign(w_lo), a_lo, flip_sign(w_hi), a_hi);
  }
  static I32x16 dot_biased(const B64& w_lo, const B64& a_lo, const B64& w_hi, const B64& a_hi) {
    return dot_u(w_lo, a_lo, w_hi, a_hi);
  }
  static __m256i dot_small_half(__m256i w, __m256i a, __m256i abs_a) {
    return _mm256_dpbusd_avx_epi32(_mm256_setzero_si256(), abs_a, _mm256_sign_epi8(w, a));
  }
  static I32x16 dot_small(const B64& w, const B64& a, const B64& abs_a) {
    return {dot_small_half(w.lo, a.lo, abs_a.lo), dot_small_half(w.hi, a.hi, abs_a.hi)};
  }
};

}  // namespace
}  // namespace millrace
