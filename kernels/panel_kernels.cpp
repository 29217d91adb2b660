#include "kernels/panel_kernels.h"

#include <string_view>

#include "kernels/panel_tables.h"

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

}  // namespace

const PanelKernels* find_panel_kernels(const KernelTable& kernels) noexcept {
  for (const Named& each : named)
    if (each.isa == kernels.name) return each.panels;
  return nullptr;
}

}  // namespace millrace
