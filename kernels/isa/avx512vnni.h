// AVX-512 with VNNI: products of bytes are summed to 32 bits in one instruction. Meanings:
// kernels/isa/README.md. Included by table_avx512vnni.cpp only.
#pragma once

#include "kernels/isa/avx512.h"

namespace millrace {
namespace {

struct Avx512Vnni : Avx512 {
  static constexpr const char* name = "avx512vnni";

  static I32x16 dot_u(B64 u_lo, B64 a_lo, B64 u_hi, B64 a_hi) {
    return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(zero_i(), u_lo, a_lo), u_hi, a_hi);
  }
  // w + 128 is unsigned; the caller takes 128 times the sum of a off again.
  static constexpr std::int32_t signed_bias = 128;
  static I32x16 dot_small(B64 w, B64 a, B64 abs_a) {
    return _mm512_dpbusd_epi32(zero_i(), abs_a, with_sign_of(w, a));
  }
  static I32x16 dot_biased(B64 w_lo, B64 a_lo, B64 w_hi, B64 a_hi) {
    return dot_u(w_lo, a_lo, w_hi, a_hi);
  }
  static I32x16 dot_i(B64 w_lo, B64 a_lo, B64 w_hi, B64 a_hi) {
    return dot_u(flip_sign(w_lo), a_lo, flip_sign(w_hi), a_hi);
  }
};

}  // namespace
}  // namespace millrace
