// What AMX does in tiles: products of blocks of 32 and many tokens. All else of its table is
// AVX-512-VNNI's. For dispatch.cpp, which joins them.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace {

#if defined(__x86_64__)
extern const WeightKernels amx_tile_kernels;  // matmul_q8 of some types; any number of tokens
#endif

}  // namespace millrace
