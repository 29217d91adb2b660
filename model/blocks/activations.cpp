#include "model/blocks/activations.h"

#include <cstring>

#include "runtime/base/check.h"

namespace millrace {

ActivationRows::ActivationRows(std::size_t rows, std::size_t columns)
    : rows_(rows), columns_(columns), values_(rows * columns) {
  q_stride_ = q8_stride(columns);
  block_stride_ = q_stride_ / 32;
  q_.resize(rows * q_stride_);
  scale_.resize(rows * block_stride_);
  sum_.resize(rows * block_stride_);
}

std::size_t ActivationRows::bytes(std::size_t rows, std::size_t columns) noexcept {
  const std::size_t stride = q8_stride(columns);
  return rows *
         (columns * sizeof(float) + stride + stride / 32 * (sizeof(float) + sizeof(std::int32_t)));
}

bool ActivationRows::quantize_rows(const KernelTable& kernels, std::size_t first, std::size_t count,
                                   std::size_t columns) noexcept {
  MILLRACE_CHECK(columns % 32 == 0 && columns <= columns_ && first + count <= rows_);
  bool finite = true;
  for (std::size_t index = first; index < first + count; ++index)
    finite &= kernels.quantize_q8(row(index), columns, q_.data() + index * q_stride_,
                                  scale_.data() + index * block_stride_,
                                  sum_.data() + index * block_stride_);
  return finite;
}

void ActivationRows::copy_row(std::size_t to, const ActivationRows& from, std::size_t from_row,
                              bool floats) noexcept {
  MILLRACE_DCHECK(columns_ == from.columns_);
  if (floats) {
    std::memcpy(row(to), from.row(from_row), columns_ * sizeof(float));
    return;
  }
  std::memcpy(q_.data() + to * q_stride_, from.q_.data() + from_row * q_stride_, q_stride_);
  std::memcpy(scale_.data() + to * block_stride_, from.scale_.data() + from_row * block_stride_,
              block_stride_ * sizeof(float));
  std::memcpy(sum_.data() + to * block_stride_, from.sum_.data() + from_row * block_stride_,
              block_stride_ * sizeof(std::int32_t));
}

Q8Batch ActivationRows::q8(std::size_t first, std::size_t step) const noexcept {
  return {q_.data() + first * q_stride_, scale_.data() + first * block_stride_,
          sum_.data() + first * block_stride_, q_stride_ * step, block_stride_ * step};
}

}  // namespace millrace
