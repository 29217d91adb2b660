#include "kernels/isa/neon_dotprod_panel.h"
#include "kernels/make_panels-inl.h"
#include "kernels/panel_tables.h"

namespace millrace {

constinit const PanelKernels neon_dotprod_panels = make_panels<NeonDotprodPanel>();

}  // namespace millrace
