// What super-blocks need beyond AVX2 with AVX-VNNI. Meanings: kernels/isa/README.md. Included by
// the super-block table of AVX-VNNI only.
#pragma once

#include "kernels/isa/avx2_super.h"
#include "kernels/isa/avxvnni.h"

namespace millrace {
namespace {

struct AvxVnniSuper : Avx2SuperOf<AvxVnni> {
  static __m256i multiply_add_half(__m256i acc, __m256i u, __m256i a, __m256i scale) {
    return _mm256_dpwssd_avx_epi32(acc, _mm256_maddubs_epi16(u, a), scale);
  }
  static I32x16 multiply_add(const I32x16& acc, const B64& u, const B64& a, const B64& scale) {
    return {multiply_add_half(acc.lo, u.lo, a.lo, scale.lo),
            multiply_add_half(acc.hi, u.hi, a.hi, scale.hi)};
  }
  static I32x16 multiply_add_signed(const I32x16& acc, const B64& w, const B64& a, const B64& abs_a,
                                    const B64& scale) {
    return multiply_add(acc, abs_a, {_mm256_sign_epi8(w.lo, a.lo), _mm256_sign_epi8(w.hi, a.hi)},
                        scale);
  }
  static I32x16 multiply_add_both(const I32x16& acc, const B64& u_lo, const B64& a_lo,
                                  const B64& u_hi, const B64& a_hi, const B64& scale) {
    return {_mm256_dpwssd_avx_epi32(acc.lo, pair_sums_both(u_lo.lo, a_lo.lo, u_hi.lo, a_hi.lo),
                                    scale.lo),
            _mm256_dpwssd_avx_epi32(acc.hi, pair_sums_both(u_lo.hi, a_lo.hi, u_hi.hi, a_hi.hi),
                                    scale.hi)};
  }
};

}  // namespace
}  // namespace millrace
