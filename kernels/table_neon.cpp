#include "kernels/isa/neon.h"
#include "kernels/make_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const KernelTable neon_kernels = make_table<Neon>();

}  // namespace millrace
