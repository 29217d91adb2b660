// What panels need beyond super-blocks in NEON with the dot product extension. Meanings:
// kernels/isa/README.md. Included by the panels of NEON + dotprod only.
#pragma once

#include "kernels/isa/dot_products.h"
#include "kernels/isa/neon_dotprod_super.h"
#include "kernels/isa/neon_panel.h"

namespace millrace {
namespace {

struct NeonDotprodDots : NeonPanelOf<NeonDotprodSuper> {
  static constexpr std::size_t panel_tokens = 4;
  static constexpr std::size_t panel_super_tokens = 4;

  static I32x16 dot4_i(const I32x16& sum, const B64& w, const B64& a) {
    return map_i([&](int i) { return vdotq_s32(sum.v[i], s8(w.v[i]), s8(a.v[i])); });
  }
};
using NeonDotprodPanel = DotProducts<NeonDotprodDots>;

}  // namespace
}  // namespace millrace
