#include "kernels/isa/avx2_super.h"
#include "kernels/make_super_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const WeightKernels avx2_super_kernels = make_super_table<Avx2Super>();

}  // namespace millrace
