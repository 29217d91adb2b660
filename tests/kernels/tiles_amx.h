// The products of the policy that AMX uses, its tile instructions emulated: what surrounds them
// runs as compiled for AMX, on any CPU with AVX-512-VNNI.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace::testing {

MatmulQ8 amx_product_with_emulated_tiles(DType type);

}  // namespace millrace::testing
