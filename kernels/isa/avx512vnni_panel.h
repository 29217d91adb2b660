// What panels need beyond super-blocks in AVX-512 with VNNI. Meanings: kernels/isa/README.md.
// Included by the panels of AVX-512-VNNI only.
#pragma once

#include "kernels/isa/avx512_panel.h"
#include "kernels/isa/avx512vnni_super.h"

namespace millrace {
namespace {

struct Avx512VnniPanel : Avx512PanelOf<Avx512VnniSuper> {
  static I32x16 dot4_i(I32x16 sum, B64 w, B64 a) { return _mm512_dpbusd_epi32(sum, w, a); }
  using Products = I32x16;
  static constexpr std::size_t products_steps(unsigned /*largest*/) { return 8; }
  static Products begin_products(I32x16 sum) { return sum; }
  static Products add_products(Products products, B64 u, B64 a) {
    return _mm512_dpbusd_epi32(products, u, a);
  }
  static I32x16 end_products(I32x16 /*sum*/, Products products) { return products; }
};

}  // namespace
}  // namespace millrace
