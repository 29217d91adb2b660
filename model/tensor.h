// Where a tensor lies in the files of a model. Plain data.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "kernels/dtype.h"

namespace millrace {

struct TensorInfo {
  std::string name;
  DType type = DType::f32;
  std::uint32_t dims = 1;  // 1..4
  std::array<std::uint64_t, 4> ne = {1, 1, 1,
                                     1};  // ne[0] fastest (row length); missing dimensions are 1
  std::uint32_t file = 0;                 // index into Checkpoint::files()
  std::uint64_t offset_bytes = 0;         // absolute in that file
  std::uint64_t bytes = 0;

  std::uint64_t row_bytes() const noexcept { return dtype_row_bytes(type, ne[0]); }
  std::uint64_t rows() const noexcept { return ne[1] * ne[2] * ne[3]; }
};

// A stretch of whole rows of one matrix in a file: a projection of one expert, or a trunk matrix.
struct MatrixExtent {
  DType type = DType::f32;
  std::uint32_t file = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t row_bytes = 0;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  std::uint64_t bytes() const noexcept { return row_bytes * rows; }
};

}  // namespace millrace
