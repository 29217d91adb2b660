#include "kernels/isa/neon_dotprod.h"
#include "kernels/make_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const KernelTable neon_dotprod_kernels = make_table<NeonDotprod>();

}  // namespace millrace
