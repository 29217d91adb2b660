#include "kernels/isa/avxvnni_super.h"
#include "kernels/make_super_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const WeightKernels avxvnni_super_kernels = make_super_table<AvxVnniSuper>();

}  // namespace millrace
