// The tables that this build holds, a translation unit per part: table_<isa>.cpp holds the
// layers' kernels and the blocks of 32, super_<isa>.cpp the super-blocks of 256. For dispatch.cpp,
// which decides whether this CPU can run them; nobody else calls through these.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace {

extern const KernelTable scalar_kernels;
extern const WeightKernels scalar_super_kernels;
#if defined(__x86_64__)
extern const KernelTable avx2_kernels;
extern const WeightKernels avx2_super_kernels;
extern const KernelTable avxvnni_kernels;
extern const WeightKernels avxvnni_super_kernels;
extern const KernelTable avx512_kernels;
extern const WeightKernels avx512_super_kernels;
extern const KernelTable avx512vnni_kernels;
extern const WeightKernels avx512vnni_super_kernels;
#elif defined(__aarch64__)
extern const KernelTable neon_kernels;
extern const WeightKernels neon_super_kernels;
extern const KernelTable neon_dotprod_kernels;
extern const WeightKernels neon_dotprod_super_kernels;
#endif

}  // namespace millrace
