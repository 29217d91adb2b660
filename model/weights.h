// Weights as the blocks use them: pointers into memory that TrunkStore or the expert cache owns.
// Plain views.
#pragma once

#include <array>
#include <cstddef>

#include "kernels/kernel_table.h"
#include "model/model_spec.h"
#include "model/tensor.h"
#include "runtime/base/check.h"

namespace millrace {

// A matrix in memory: y = W x with `rows` dot products of `columns` elements.
struct Matrix {
  DType type = DType::f32;
  const std::byte* data = nullptr;
  std::size_t row_bytes = 0;  // from one row to the next; by inputs: from one column to the next
  std::size_t rows = 0;
  std::size_t columns = 0;
  const std::byte* scales = nullptr;  // these as in WeightRows
  std::size_t scale_row_bytes = 0;
  std::size_t tile_row = 0;
  ScaleType scale_type = ScaleType::none;
  const std::byte* zeros = nullptr;
  std::size_t input_step = 0;  // not 0: a column's values lie together, of every so many rows ours

  Matrix() = default;
  Matrix(const MatrixExtent& extent, const std::byte* at, const std::byte* scales_at = nullptr,
         const std::byte* zeros_at = nullptr)
      : type(extent.type),
        data(at),
        row_bytes(extent.row_bytes * (extent.by_inputs ? 1 : extent.row_step)),
        rows(extent.rows),
        columns(extent.columns),
        scales(scales_at),
        scale_row_bytes(extent.scales.row_bytes * extent.row_step),
        scale_type(extent.scales.type),
        zeros(zeros_at),
        input_step(extent.by_inputs ? extent.row_step : 0) {}
  bool present() const noexcept { return data != nullptr; }

  // Rows [first, first + count); of AWQ whole words of eight.
  Matrix slice(std::size_t first, std::size_t count) const noexcept {
    Matrix part = *this;
    part.data += input_step > 0 ? dtype_row_bytes(type, first * input_step) : first * row_bytes;
    part.rows = count;
    if (zeros != nullptr) {
      MILLRACE_CHECK(first % 8 == 0 && count % 8 == 0);
      part.scales += first * scale_bytes(scale_type);
      part.zeros += dtype_row_bytes(type, first);
    } else if (scales != nullptr) {
      const std::size_t tile_rows = scale_tile(type).rows;
      part.scales += (tile_row + first) / tile_rows * scale_row_bytes;
      part.tile_row = (tile_row + first) % tile_rows;
    }
    return part;
  }
  WeightRows view() const noexcept {
    return {data, row_bytes, rows, columns, scales, scale_row_bytes, tile_row, scale_type, zeros};
  }
};

// One row as float32.
inline void decode_matrix_row(const KernelTable& kernels, const Matrix& matrix, std::size_t row,
                              float* out) {
  const auto id = static_cast<std::size_t>(matrix.type);
  if (matrix.scales != nullptr) kernels.decode_scaled[id](matrix.view(), row, out);
  else kernels.decode_row[id](matrix.data + row * matrix.row_bytes, matrix.columns, out);
}

// The trunk of one layer. Absent matrices and vectors are null.
struct LayerWeights {
  std::array<Matrix, matrix_role_count> matrices;
  std::array<const float*, vector_role_count> vectors{};

  const Matrix& matrix(MatrixRole role) const noexcept {
    return matrices[static_cast<std::size_t>(role)];
  }
  const float* vector(VectorRole role) const noexcept {
    return vectors[static_cast<std::size_t>(role)];
  }
};

}  // namespace millrace
