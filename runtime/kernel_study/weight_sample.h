// Weights and activations to measure products with: random codes under ordinary scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/kernel_table.h"
#include "model/blocks/panel_memory.h"

namespace millrace {

// A matrix of one type in memory that somebody else owns. Codes first, then the scales of types
// that have them apart, then zeros.
class WeightSample {
 public:
  // As many rows as fit `bytes`, at least one unit: 128 rows of types scaled in tiles and of AWQ,
  // else 4.
  WeightSample(DType type, std::size_t columns, std::uint64_t bytes);
  std::size_t rows() const noexcept { return rows_; }
  std::uint64_t bytes() const noexcept {
    return rows_ * row_bytes_ + scale_rows_ * (scale_row_bytes_ + stride_);
  }
  // Writes bytes() bytes: finite numbers in every type. Far apart rows may be alike.
  void fill(std::byte* data, std::uint64_t seed) const;
  WeightRows view(const std::byte* data) const noexcept;

 private:
  void turn_over(std::uint64_t bytes);

  DType type_;
  std::size_t columns_, rows_, row_bytes_;
  std::size_t scale_rows_ = 0, scale_row_bytes_ = 0;
  std::size_t stride_ = 0;  // of AWQ's columns and zeros
};

// Activations of some tokens in all the forms that products take.
class ActivationSample {
 public:
  // `columns`: a multiple of 256.
  ActivationSample(const KernelTable& kernels, std::size_t columns, std::size_t tokens);
  // What such a sample takes.
  static std::uint64_t bytes(std::size_t columns, std::size_t tokens) noexcept;
  // Of the first `tokens` tokens; y gets tokens x rows. The product with rounded activations where
  // the type has one, unless `unrounded`; by panels where a prompt's tokens would go that way.
  void multiply(const KernelTable& kernels, const PanelScratch& panels, DType type, bool unrounded,
                const WeightRows& weights, std::size_t tokens, float* y) const;

 private:
  std::size_t columns_, stride_, super_stride_;
  std::vector<float> x_;
  std::vector<std::int8_t> q_, super_q_;
  std::vector<float> scale_, super_scale_;
  std::vector<std::int32_t> sum_;
  std::vector<std::int16_t> super_sum_;
};

}  // namespace millrace
