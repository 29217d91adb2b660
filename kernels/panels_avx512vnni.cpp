#include "kernels/isa/avx512vnni_panel.h"
#include "kernels/make_panels-inl.h"
#include "kernels/panel_tables.h"

namespace millrace {

constinit const PanelKernels avx512vnni_panels = make_panels<Avx512VnniPanel>();

}  // namespace millrace
