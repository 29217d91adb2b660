#include "kernels/isa/neon_super.h"
#include "kernels/make_super_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const WeightKernels neon_super_kernels = make_super_table<NeonSuper>();

}  // namespace millrace
