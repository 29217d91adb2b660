// Linear layers over the kernels: which product a matrix takes, and its rows shared over the
// threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"
#include "model/blocks/activations.h"
#include "model/blocks/panel_memory.h"
#include "model/weights.h"
#include "runtime/base/parallel.h"

namespace millrace {

enum class ActivationMode : std::uint8_t {
  q8,   // quantized weights meet activations rounded to 8 bits (integer dots)
  f32,  // weights decoded, activations unrounded
};

// What every block needs; borrowed for the call.
struct BlockContext {
  const KernelTable& kernels;
  Parallel& parallel;
  ActivationMode mode;
  PanelScratch panels = {};  // for products with many tokens; none: without panels, more slowly

  // Which quantized twin of its input a matrix of this type takes; none: unrounded activations. The
  // router never takes one: see linear_f32().
  Rounding rounding(DType type) const noexcept {
    const auto id = static_cast<std::size_t>(type);
    if (mode != ActivationMode::q8) return Rounding::none;
    if (kernels.matmul_q8[id] != nullptr) return Rounding::blocks;
    return kernels.matmul_q8_super[id] != nullptr ? Rounding::supers : Rounding::none;
  }
};

// Matrices whose columns lie together (input_step) are of float types or AWQ.
// y[t * y_stride + r] = (W x_t)[r], where x_t is row first + t * step of x, t < tokens. The
// quantized twin of x that W's type takes must be up to date.
void linear(const BlockContext& context, const Matrix& weights, const ActivationRows& x,
            std::size_t first, std::size_t tokens, float* y, std::size_t y_stride,
            std::size_t step = 1);
// The same with unrounded activations in any mode.
void linear_f32(const BlockContext& context, const Matrix& weights, const ActivationRows& x,
                std::size_t first, std::size_t tokens, float* y, std::size_t y_stride,
                std::size_t step = 1);

// y_t += bias for `tokens` rows; nothing if bias is null.
void add_bias(const BlockContext& context, const float* bias, std::size_t count, std::size_t tokens,
              float* y, std::size_t y_stride);

}  // namespace millrace
