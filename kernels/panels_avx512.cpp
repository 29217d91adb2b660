#include "kernels/isa/avx512_panel.h"
#include "kernels/make_panels-inl.h"
#include "kernels/panel_tables.h"

namespace millrace {

constinit const PanelKernels avx512_panels = make_panels<Avx512Panel>();

}  // namespace millrace
