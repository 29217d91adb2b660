#include "kernels/isa/avx512vnni.h"
#include "kernels/make_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const KernelTable avx512vnni_kernels = make_table<Avx512Vnni>();

}  // namespace millrace
