// Rows of activations: float32 values and, beside them, the same rows quantized to 8 bits, per 32
// values and per 256 (kernel_table.h, Q8Batch and Q8SuperBatch). Allocated once with the workspace;
// row() and quantize_rows() may be used from several threads on different rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernel_table.h"

namespace millrace {

// Which quantized twins of a row are wanted: matrices of different types may take the same input.
enum class Rounding : std::uint8_t { none = 0, blocks = 1, supers = 2, both = 3 };
constexpr Rounding operator|(Rounding a, Rounding b) noexcept {
  return static_cast<Rounding>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool has(Rounding set, Rounding one) noexcept {
  return (static_cast<unsigned>(set) & static_cast<unsigned>(one)) != 0;
}

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

  // Fills the quantized twins in `rounding` of the first `columns` values (a multiple of 32, or of
  // 256 with supers) of rows [first, first + count). False if a value is NaN or infinite; with
  // none nothing is looked at.
  bool quantize_rows(const KernelTable& kernels, std::size_t first, std::size_t count,
                     std::size_t columns, Rounding rounding) noexcept;
  // Copies one row of `from` (same columns) into row `to`: the floats, or the quantized twins in
  // `rounding`.
  void copy_floats(std::size_t to, const ActivationRows& from, std::size_t from_row) noexcept;
  void copy_rounded(std::size_t to, const ActivationRows& from, std::size_t from_row,
                    Rounding rounding) noexcept;

  // Views of the rows first, first + step, ….
  Q8Batch q8(std::size_t first = 0, std::size_t step = 1) const noexcept;
  Q8SuperBatch q8_super(std::size_t first = 0, std::size_t step = 1) const noexcept;
  F32Batch f32(std::size_t first = 0, std::size_t step = 1) const noexcept {
    return {row(first), columns_ * step};
  }

 private:
  // The quantized twin of every row; strides in values, scales and sums.
  template <class Sum>
  struct Twin {
    std::size_t q_stride = 0, scale_stride = 0, sum_stride = 0;
    std::vector<std::int8_t> q;
    std::vector<float> scale;
    std::vector<Sum> sum;

    void resize(std::size_t rows);
    std::size_t row_bytes() const noexcept;
    void copy_row(std::size_t to, const Twin& from, std::size_t from_row) noexcept;
  };
  static Twin<std::int32_t> block_twin(std::size_t columns) noexcept;
  static Twin<std::int16_t> super_twin(std::size_t columns) noexcept;

  std::size_t rows_ = 0, columns_ = 0;
  std::vector<float> values_;
  Twin<std::int32_t> blocks_;
  Twin<std::int16_t> supers_;
};

}  // namespace millrace
