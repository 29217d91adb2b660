#include "model/blocks/activations.h"

#include <cstring>

#include "runtime/base/check.h"

namespace millrace {

template <class Sum>
void ActivationRows::Twin<Sum>::resize(std::size_t rows) {
  q.resize(rows * q_stride);
  scale.resize(rows * scale_stride);
  sum.resize(rows * sum_stride);
}

template <class Sum>
std::size_t ActivationRows::Twin<Sum>::row_bytes() const noexcept {
  return q_stride + scale_stride * sizeof(float) + sum_stride * sizeof(Sum);
}

template <class Sum>
void ActivationRows::Twin<Sum>::copy_row(std::size_t to, const Twin& from,
                                         std::size_t from_row) noexcept {
  std::memcpy(q.data() + to * q_stride, from.q.data() + from_row * q_stride, q_stride);
  std::memcpy(scale.data() + to * scale_stride, from.scale.data() + from_row * scale_stride,
              scale_stride * sizeof(float));
  std::memcpy(sum.data() + to * sum_stride, from.sum.data() + from_row * sum_stride,
              sum_stride * sizeof(Sum));
}

ActivationRows::Twin<std::int32_t> ActivationRows::block_twin(std::size_t columns) noexcept {
  Twin<std::int32_t> twin;
  twin.q_stride = q8_stride(columns);
  twin.scale_stride = twin.sum_stride = twin.q_stride / 32;
  return twin;
}

// Rows that are no whole super-blocks never meet weights that are.
ActivationRows::Twin<std::int16_t> ActivationRows::super_twin(std::size_t columns) noexcept {
  Twin<std::int16_t> twin;
  twin.q_stride = q8_super_stride(columns);
  twin.scale_stride = twin.q_stride / 256;
  twin.sum_stride = twin.q_stride / 16;
  return twin;
}

ActivationRows::ActivationRows(std::size_t rows, std::size_t columns)
    : rows_(rows),
      columns_(columns),
      values_(rows * columns),
      blocks_(block_twin(columns)),
      supers_(super_twin(columns)) {
  blocks_.resize(rows);
  supers_.resize(rows);
}

std::size_t ActivationRows::bytes(std::size_t rows, std::size_t columns) noexcept {
  return rows * (columns * sizeof(float) + block_twin(columns).row_bytes() +
                 super_twin(columns).row_bytes());
}

bool ActivationRows::quantize_rows(const KernelTable& kernels, std::size_t first, std::size_t count,
                                   std::size_t columns, Rounding rounding) noexcept {
  MILLRACE_CHECK(columns <= columns_ && first + count <= rows_);
  MILLRACE_CHECK(rounding == Rounding::none || columns % 32 == 0);
  MILLRACE_CHECK(!has(rounding, Rounding::supers) || columns % 256 == 0);
  bool finite = true;
  for (std::size_t i = first; i < first + count; ++i) {
    if (has(rounding, Rounding::blocks))
      finite &= kernels.quantize_q8(row(i), columns, blocks_.q.data() + i * blocks_.q_stride,
                                    blocks_.scale.data() + i * blocks_.scale_stride,
                                    blocks_.sum.data() + i * blocks_.sum_stride);
    if (has(rounding, Rounding::supers))
      finite &= kernels.quantize_q8_super(row(i), columns, supers_.q.data() + i * supers_.q_stride,
                                          supers_.scale.data() + i * supers_.scale_stride,
                                          supers_.sum.data() + i * supers_.sum_stride);
  }
  return finite;
}

void ActivationRows::copy_floats(std::size_t to, const ActivationRows& from,
                                 std::size_t from_row) noexcept {
  MILLRACE_DCHECK(columns_ == from.columns_);
  std::memcpy(row(to), from.row(from_row), columns_ * sizeof(float));
}

void ActivationRows::copy_rounded(std::size_t to, const ActivationRows& from, std::size_t from_row,
                                  Rounding rounding) noexcept {
  MILLRACE_DCHECK(columns_ == from.columns_);
  if (has(rounding, Rounding::blocks)) blocks_.copy_row(to, from.blocks_, from_row);
  if (has(rounding, Rounding::supers)) supers_.copy_row(to, from.supers_, from_row);
}

Q8Batch ActivationRows::q8(std::size_t first, std::size_t step) const noexcept {
  return {blocks_.q.data() + first * blocks_.q_stride,
          blocks_.scale.data() + first * blocks_.scale_stride,
          blocks_.sum.data() + first * blocks_.sum_stride, blocks_.q_stride * step,
          blocks_.scale_stride * step};
}

Q8SuperBatch ActivationRows::q8_super(std::size_t first, std::size_t step) const noexcept {
  return {supers_.q.data() + first * supers_.q_stride,
          supers_.scale.data() + first * supers_.scale_stride,
          supers_.sum.data() + first * supers_.sum_stride, supers_.q_stride * step,
          supers_.scale_stride * step};
}

}  // namespace millrace
