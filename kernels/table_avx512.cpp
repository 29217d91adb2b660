#include "kernels/isa/avx512.h"
#include "kernels/make_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const KernelTable avx512_kernels = make_table<Avx512>();

}  // namespace millrace
