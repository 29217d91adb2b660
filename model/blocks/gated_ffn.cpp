#include "model/blocks/gated_ffn.h"

#include <atomic>

namespace millrace {

namespace {

void scale_rows(float factor, std::size_t count, std::size_t tokens, float* y, std::size_t stride) {
  if (factor == 1) return;
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t i = 0; i < count; ++i) y[t * stride + i] *= factor;
}

}  // namespace

bool ffn_gate_up(const BlockContext& context, const GatedFfn& ffn, DType down_type,
                 const ActivationRows& x, std::size_t x_first, std::size_t tokens,
                 ActivationRows& hidden, std::size_t hidden_first, float* up_buffer) {
  const std::size_t inner = ffn.gate.rows;
  float* const gate = hidden.row(hidden_first);
  // A layer may be narrower than the rows, which are as wide as the widest.
  const std::size_t stride = hidden.columns();
  linear(context, ffn.gate, x, x_first, tokens, gate, stride);
  linear(context, ffn.up, x, x_first, tokens, up_buffer, inner);
  scale_rows(ffn.gate_scale, inner, tokens, gate, stride);
  scale_rows(ffn.up_scale, inner, tokens, up_buffer, inner);
  add_bias(context, ffn.gate_bias, inner, tokens, gate, stride);
  add_bias(context, ffn.up_bias, inner, tokens, up_buffer, inner);
  const Rounding rounding = context.rounding(down_type);
  std::atomic<bool> finite = true;
  constexpr std::size_t grain = 4;
  context.parallel.for_ranges(tokens, grain, [&](std::size_t begin, std::size_t end, unsigned) {
    for (std::size_t t = begin; t < end; ++t) {
      float* const row = gate + t * stride;
      const float* const up = up_buffer + t * inner;
      if (ffn.clamp == nullptr) context.kernels.swiglu(row, up, inner, row);
      else context.kernels.swiglu_clamped(row, up, inner, *ffn.clamp, row);
    }
    if (!hidden.quantize_rows(context.kernels, hidden_first + begin, end - begin, inner, rounding))
      finite = false;
  });
  return finite;
}

void ffn_down(const BlockContext& context, const GatedFfn& ffn, const ActivationRows& hidden,
              std::size_t hidden_first, std::size_t tokens, float* y, std::size_t y_stride) {
  linear(context, ffn.down, hidden, hidden_first, tokens, y, y_stride);
  scale_rows(ffn.down_scale, ffn.down.rows, tokens, y, y_stride);
  add_bias(context, ffn.down_bias, ffn.down.rows, tokens, y, y_stride);
}

}  // namespace millrace
