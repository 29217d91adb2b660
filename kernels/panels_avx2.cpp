#include "kernels/isa/avx2_panel.h"
#include "kernels/make_panels-inl.h"
#include "kernels/panel_tables.h"

namespace millrace {

constinit const PanelKernels avx2_panels = make_panels<Avx2Panel>();

}  // namespace millrace
