// What super-blocks need beyond AVX-512 with VNNI. Meanings: kernels/isa/README.md. Included by
// the super-block tables of AVX-512-VNNI only.
#pragma once

#include "kernels/isa/avx512_super.h"
#include "kernels/isa/avx512vnni.h"

namespace millrace {
namespace {

struct Avx512VnniSuper : Avx512SuperOf<Avx512Vnni> {
  static I32x16 multiply_add(I32x16 acc, B64 u, B64 a, B64 scale) {
    return _mm512_dpwssd_epi32(acc, _mm512_maddubs_epi16(u, a), scale);
  }
  static I32x16 multiply_add_signed(I32x16 acc, B64 w, B64 a, B64 abs_a, B64 scale) {
    return multiply_add(acc, abs_a, with_sign_of(w, a), scale);
  }
};

}  // namespace
}  // namespace millrace
