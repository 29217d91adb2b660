// What super-blocks need beyond NEON with the dot product extension. Meanings:
// kernels/isa/README.md. Included by the super-block table of NEON + dotprod only.
#pragma once

#include "kernels/isa/neon_dotprod.h"
#include "kernels/isa/neon_super.h"

namespace millrace {
namespace {

struct NeonDotprodSuper : NeonSuperOf<NeonDotprod> {
  // All words of a lane's scale are equal: one for its 16 values.
  static I32x16 multiply_add(const I32x16& acc, const B64& w, const B64& a, const B64& scale) {
    return map_i([&](int i) {
      const int32x4_t sum = vdotq_s32(vdupq_n_s32(0), s8(w.v[i]), s8(a.v[i]));
      return vmlaq_s32(acc.v[i], sum, vmovl_s16(vget_low_s16(s16(scale.v[i]))));
    });
  }
  static I32x16 multiply_add_signed(const I32x16& acc, const B64& w, const B64& a, const B64&,
                                    const B64& scale) {
    return multiply_add(acc, w, a, scale);
  }
};

}  // namespace
}  // namespace millrace
