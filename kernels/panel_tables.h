// The panel tables that this build holds, each in a translation unit of its own
// (panels_<isa>.cpp). For panel_kernels.cpp only.
#pragma once

#include "kernels/panel_kernels.h"

namespace millrace {

extern const PanelKernels scalar_panels;
#if defined(__x86_64__)
extern const PanelKernels avx2_panels;
extern const PanelKernels avxvnni_panels;
extern const PanelKernels avx512_panels;
extern const PanelKernels avx512vnni_panels;
#elif defined(__aarch64__)
extern const PanelKernels neon_panels;
extern const PanelKernels neon_dotprod_panels;
#endif

}  // namespace millrace
