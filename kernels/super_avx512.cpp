#include "kernels/isa/avx512_super.h"
#include "kernels/make_super_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const WeightKernels avx512_super_kernels = make_super_table<Avx512Super>();

}  // namespace millrace
