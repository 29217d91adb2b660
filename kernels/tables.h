// The tables that this build holds, one translation unit each (table_<isa>.cpp). For dispatch.cpp,
// which decides whether this CPU can run them; nobody else calls through these.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace {

extern const KernelTable scalar_kernels;
#if defined(__x86_64__)
extern const KernelTable avx2_kernels;
extern const KernelTable avx512_kernels;
extern const KernelTable avx512vnni_kernels;
#endif

}  // namespace millrace
