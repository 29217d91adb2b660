#include "kernels/isa/neon_panel.h"
#include "kernels/make_panels-inl.h"
#include "kernels/panel_tables.h"

namespace millrace {

constinit const PanelKernels neon_panels = make_panels<NeonPanel>();

}  // namespace millrace
