// Super-blocks of 256 values for the reference: one block taken apart by the format's definition.
// For kernels/reference.cpp; types without an entry abort.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace millrace::reference {

// x[i] = factor * scale[i / 16] * code[i] - minimum_factor * minimum[i / 16]
struct SuperBlock {
  double factor;
  double minimum_factor;
  bool has_minima;
  int scale[16];
  int minimum[16];
  int code[256];
};

SuperBlock read_super_block(DType type, const std::byte* block);

// The part of it for the formats over codebooks (reference_grids.cpp); `out` is zero before.
void read_grid_block(DType type, const std::byte* block, SuperBlock& out);

}  // namespace millrace::reference
