// How fast this machine takes weights through its kernels, measured in a fraction of a second.
#pragma once

#include <cstdint>

#include "kernels/dtype.h"
#include "kernels/kernel_table.h"
#include "runtime/base/result.h"

namespace millrace {

struct ComputeSpeed {
  double memory_bytes_per_second = 0;  // plain read loop over more than the caches hold
  double expert_bytes_per_second = 0;  // product of one token with weights of the experts' type
  double trunk_bytes_per_second = 0;   // the same with the trunk's
  unsigned threads = 0;
};

// Takes about half a second and 64 MiB to 1 GiB of memory (an eighth of what is there at most),
// which it gives back; `threads` compute threads. A type that has no product with quantized
// activations is measured with float ones. `memory` errors.
Result<ComputeSpeed> measure_compute(const KernelTable& kernels, DType expert_type,
                                     DType trunk_type, unsigned threads);

}  // namespace millrace
