#include "kernels/panel_kernels.h"

#include <string_view>

#include "kernels/panel_tables.h"
#include "kernels/tile_table.h"

namespace millrace {

namespace {

struct Named {
  std::string_view isa;
  const PanelKernels* panels;
};

constexpr Named named[] = {
    {"scalar", &scalar_panels},
#if defined(__x86_64__)
    {"avx2", &avx2_panels},     {"avxvnni", &avxvnni_panels},
    {"avx512", &avx512_panels}, {"avx512vnni", &avx512vnni_panels},
#elif defined(__aarch64__)
    {"neon", &neon_panels},
    {"neon-dotprod", &neon_dotprod_panels},
#endif
};

#if defined(__x86_64__)
// AVX-512-VNNI's, but for the types whose many tokens go through tiles.
PanelKernels panels_beside_tiles() noexcept {
  PanelKernels panels = avx512vnni_panels;
  for (std::size_t type = 0; type < dtype_count; ++type)
    if (amx_tile_kernels.matmul_q8[type] != nullptr) panels.q8[type] = nullptr;
  return panels;
}
#endif

}  // namespace

const PanelKernels* find_panel_kernels(const KernelTable& kernels) noexcept {
#if defined(__x86_64__)
  static const PanelKernels amx_panels = panels_beside_tiles();
  if (kernels.name == std::string_view("amx")) return &amx_panels;
#endif
  for (const Named& each : named)
    if (each.isa == kernels.name) return each.panels;
  return nullptr;
}

}  // namespace millrace
