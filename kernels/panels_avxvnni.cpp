#include "kernels/isa/avxvnni_panel.h"
#include "kernels/make_panels-inl.h"
#include "kernels/panel_tables.h"

namespace millrace {

constinit const PanelKernels avxvnni_panels = make_panels<AvxVnniPanel>();

}  // namespace millrace
