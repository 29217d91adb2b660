// Rows of activations: float32 values and, beside them, the same rows quantized to 8 bits
// (kernel_table.h, Q8Batch). Allocated once with the workspace; row() and quantize_rows() may be
// used from several threads on different rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernel_table.h"

namespace millrace {

class ActivationRows {
 public:
  ActivationRows() = default;
  // Zero-filled. `columns` is the widest that is needed: layers may use fewer.
  ActivationRows(std::size_t rows, std::size_t columns);
  // Bytes that such an object allocates (for the plan).
  static std::size_t bytes(std::size_t rows, std::size_t columns) noexcept;

  std::size_t rows() const noexcept { return rows_; }
  std::size_t columns() const noexcept { return columns_; }
  float* row(std::size_t index) noexcept { return values_.data() + index * columns_; }
  const float* row(std::size_t index) const noexcept { return values_.data() + index * columns_; }

  // Fills the quantized twin of the first `columns` values (a multiple of 32) of rows [first, first
  // + count). False if a value is NaN or infinite.
  bool quantize_rows(const KernelTable& kernels, std::size_t first, std::size_t count,
                     std::size_t columns) noexcept;
  // Copies one row of `from` (same columns) into row `to`: floats if `floats`, else the quantized
  // twin.
  void copy_row(std::size_t to, const ActivationRows& from, std::size_t from_row,
                bool floats) noexcept;

  // Views of the rows first, first + step, ….
  Q8Batch q8(std::size_t first = 0, std::size_t step = 1) const noexcept;
  F32Batch f32(std::size_t first = 0, std::size_t step = 1) const noexcept {
    return {row(first), columns_ * step};
  }

 private:
  std::size_t rows_ = 0, columns_ = 0, q_stride_ = 0, block_stride_ = 0;
  std::vector<float> values_;
  std::vector<std::int8_t> q_;
  std::vector<float> scale_;
  std::vector<std::int32_t> sum_;
};

}  // namespace millrace
