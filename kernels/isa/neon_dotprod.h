// NEON with the dot product extension: four products of signed bytes are summed to 32 bits in one
// instruction. Meanings: kernels/isa/README.md. Included by the tables of NEON + dotprod only.
#pragma once

#include "kernels/isa/neon.h"

namespace millrace {
namespace {

struct NeonDotprod : Neon {
  static constexpr const char* name = "neon-dotprod";

  static I32x16 dot_i(const B64& w_lo, const B64& a_lo, const B64& w_hi, const B64& a_hi) {
    return map_i([&](int i) {
      const int32x4_t sum = vdotq_s32(vdupq_n_s32(0), s8(w_lo.v[i]), s8(a_lo.v[i]));
      return vdotq_s32(sum, s8(w_hi.v[i]), s8(a_hi.v[i]));
    });
  }
  static I32x16 dot_u(const B64& u_lo, const B64& a_lo, const B64& u_hi, const B64& a_hi) {
    return dot_i(u_lo, a_lo, u_hi, a_hi);
  }
  static I32x16 dot_biased(const B64& w_lo, const B64& a_lo, const B64& w_hi, const B64& a_hi) {
    return dot_i(w_lo, a_lo, w_hi, a_hi);
  }
  static I32x16 dot_small(const B64& w, const B64& a, const B64&) {
    return map_i([&](int i) { return vdotq_s32(vdupq_n_s32(0), s8(w.v[i]), s8(a.v[i])); });
  }
};

}  // namespace
}  // namespace millrace
