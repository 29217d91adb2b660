#include "kernels/isa/neon_dotprod_super.h"
#include "kernels/make_super_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const WeightKernels neon_dotprod_super_kernels = make_super_table<NeonDotprodSuper>();

}  // namespace millrace
