#include "kernels/isa/avxvnni.h"
#include "kernels/make_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const KernelTable avxvnni_kernels = make_table<AvxVnni>();

}  // namespace millrace
