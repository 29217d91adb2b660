// Weights as the blocks use them: pointers into memory that TrunkStore or the expert cache owns.
// Plain views.
#pragma once

#include <array>
#include <cstddef>

#include "kernels/kernel_table.h"
#include "model/model_spec.h"
#include "model/tensor.h"

namespace millrace {

// A matrix in memory: y = W x with `rows` dot products of `columns` elements.
struct Matrix {
  DType type = DType::f32;
  const std::byte* data = nullptr;
  std::size_t row_bytes = 0;
  std::size_t rows = 0;
  std::size_t columns = 0;

  Matrix() = default;
  Matrix(const MatrixExtent& extent, const std::byte* at)
      : type(extent.type),
        data(at),
        row_bytes(extent.row_bytes),
        rows(extent.rows),
        columns(extent.columns) {}
  bool present() const noexcept { return data != nullptr; }
};

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
