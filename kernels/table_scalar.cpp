#include "kernels/isa/scalar.h"
#include "kernels/make_table-inl.h"
#include "kernels/tables.h"

namespace millrace {

constinit const KernelTable scalar_kernels = make_table<Scalar>();

}  // namespace millrace
