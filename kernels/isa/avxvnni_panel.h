// What panels need beyond super-blocks in AVX2 with AVX-VNNI. Meanings: kernels/isa/README.md.
// Included by the panels of AVX-VNNI only.
#pragma once

#include "kernels/isa/avx2_panel.h"
#include "kernels/isa/avxvnni_super.h"

namespace millrace {
namespace {

struct AvxVnniPanel : Avx2PanelOf<AvxVnniSuper> {
  static I32x16 dot4_i(const I32x16& sum, const B64& w, const B64& a) {
    return {_mm256_dpbusd_avx_epi32(sum.lo, w.lo, a.lo),
            _mm256_dpbusd_avx_epi32(sum.hi, w.hi, a.hi)};
  }
  using Products = I32x16;
  static constexpr std::size_t products_steps(unsigned /*largest*/) { return 8; }
  static Products begin_products(const I32x16& sum) { return sum; }
  static Products add_products(const Products& products, const B64& u, const B64& a) {
    return dot4_i(products, u, a);
  }
  static I32x16 end_products(const I32x16& /*sum*/, const Products& products) { return products; }
};

}  // namespace
}  // namespace millrace
