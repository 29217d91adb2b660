#include "kernels/isa/avx512vnni_super.h"
#include "kernels/make_super_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const WeightKernels avx512vnni_super_kernels = make_super_table<Avx512VnniSuper>();

}  // namespace millrace
