#include "kernels/isa/avx2.h"
#include "kernels/make_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const KernelTable avx2_kernels = make_table<Avx2>();

}  // namespace millrace
