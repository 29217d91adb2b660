#include "tests/kernels/tiles_amx.h"

#include "kernels/isa/amx.h"
#include "tests/kernels/emulated_tiles.h"

namespace millrace::testing {

MatmulQ8 amx_product_with_emulated_tiles(DType type) { return emulated_product<Amx>(type); }

}  // namespace millrace::testing
