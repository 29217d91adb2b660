// What can be told about a model's files without digests: every byte is read, at the drive's speed,
// and every weight and scale is a finite number.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "model/format/checkpoint.h"
#include "runtime/base/result.h"
#include "runtime/progress.h"

namespace millrace {

// Values of a tensor that are NaN or infinite.
struct BadWeights {
  std::string tensor;       // printable
  std::uint64_t count = 0;  // of values; of scales, where these lie apart
  std::uint64_t first = 0;  // number of the first in the tensor, as it lies in the file
};

struct WeightCheck {
  std::uint64_t bytes = 0;      // read: all of all files
  std::uint64_t unchecked = 0;  // of them in tensors of types whose values are not looked at
  double seconds = 0;
  std::vector<BadWeights> bad;          // in the order of the tensors
  std::vector<std::string> unreadable;  // stretches: file, offset, cause
};

// Reads the files with several threads. `io` error if one cannot be opened, `cancelled`.
Result<WeightCheck> check_weights(const Checkpoint& checkpoint, const KernelTable& kernels,
                                  ProgressLine& progress, const std::atomic<bool>& cancel);

}  // namespace millrace
