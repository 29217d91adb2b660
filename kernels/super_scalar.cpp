#include "kernels/isa/scalar_super.h"
#include "kernels/make_super_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const WeightKernels scalar_super_kernels = make_super_table<ScalarSuper>();

}  // namespace millrace
