#include "kernels/isa/scalar_panel.h"
#include "kernels/make_panels-inl.h"
#include "kernels/panel_tables.h"

namespace millrace {

constinit const PanelKernels scalar_panels = make_panels<ScalarPanel>();

}  // namespace millrace
