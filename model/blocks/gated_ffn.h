// The gated feed-forward block Wd·(silu(Wg·x) * (Wu·x)): dense layers, shared and single experts
// alike.
#pragma once

#include <cstddef>
#include <span>

#include "model/blocks/activations.h"
#include "model/blocks/linear.h"
#include "model/weights.h"
#include "runtime/base/limits.h"

namespace millrace {

// The matrices of one FFN. Biases may be null.
struct GatedFfn {
  Matrix gate, up, down;
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;
  // Factors of the products, before biases.
  float gate_scale = 1, up_scale = 1, down_scale = 1;
  const SwigluClamp* clamp = nullptr;  // swiglu_clamped instead of swiglu, with these numbers
};

// hidden rows hidden_first.. = silu(Wg·x) * (Wu·x) for `tokens` rows of x from x_first on (their
// quantized twin up to date if a matrix uses it), and the quantized twin of the hidden rows if
// `down_type` uses it. `up_buffer` takes tokens x Wu.rows floats. False if a value is NaN or
// infinite.
bool ffn_gate_up(const BlockContext& context, const GatedFfn& ffn, DType down_type,
                 const ActivationRows& x, std::size_t x_first, std::size_t tokens,
                 ActivationRows& hidden, std::size_t hidden_first, float* up_buffer);

// y_t = Wd·hidden_t (+ bias) for `tokens` hidden rows, y_stride floats apart.
void ffn_down(const BlockContext& context, const GatedFfn& ffn, const ActivationRows& hidden,
              std::size_t hidden_first, std::size_t tokens, float* y, std::size_t y_stride);

// One token through one of several FFNs; the buffers as above.
struct FfnRow {
  GatedFfn ffn;
  const ActivationRows* x;
  std::size_t x_row;
  ActivationRows* hidden;
  std::size_t hidden_row;
  float* up;  // ffn.up.rows floats
  float* y;   // ffn.down.rows floats
};
inline constexpr std::size_t ffn_rows_max = limits::experts_used_max + 1;  // experts, a shared one

// All of them together (at most ffn_rows_max): first the products with gate and up of all, shared
// over the threads in one go, then those with down. The same bits as ffn_gate_up and ffn_down.
// False if a value is NaN or infinite.
bool run_ffn_rows(const BlockContext& context, std::span<const FfnRow> rows);

}  // namespace millrace
