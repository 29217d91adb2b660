// What panels need beyond super-blocks in AVX2 with AVX-VNNI. Meanings: kernels/isa/README.md.
// Included by the panels of AVX-VNNI only.
#pragma once

#include "kernels/isa/avx2_panel.h"
#include "kernels/isa/avxvnni_super.h"
#include "kernels/isa/dot_products.h"

namespace millrace {
namespace {

struct AvxVnniDots : Avx2PanelOf<AvxVnniSuper> {
  static I32x16 dot4_i(const I32x16& sum, const B64& w, const B64& a) {
    return {_mm256_dpbusd_avx_epi32(sum.lo, w.lo, a.lo),
            _mm256_dpbusd_avx_epi32(sum.hi, w.hi, a.hi)};
  }
};
using AvxVnniPanel = DotProducts<AvxVnniDots>;

}  // namespace
}  // namespace millrace
