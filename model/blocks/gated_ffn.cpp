#include "model/blocks/gated_ffn.h"

#include <array>
#include <atomic>

#include "model/blocks/products.h"
#include "runtime/base/check.h"

namespace millrace {

namespace {

void scale_rows(float factor, std::size_t count, std::size_t tokens, float* y, std::size_t stride) {
  if (factor == 1) return;
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t i = 0; i < count; ++i) y[t * stride + i] *= factor;
}

// From the products with gate (in the hidden row) and up to the hidden row, and its quantized twin.
bool activate(const BlockContext& context, const GatedFfn& ffn, DType down_type,
              ActivationRows& hidden, std::size_t row, float* up) {
  const std::size_t inner = ffn.gate.rows;
  float* const gate = hidden.row(row);
  scale_rows(ffn.gate_scale, inner, 1, gate, inner);
  scale_rows(ffn.up_scale, inner, 1, up, inner);
  add_bias(context, ffn.gate_bias, inner, 1, gate, inner);
  add_bias(context, ffn.up_bias, inner, 1, up, inner);
  if (ffn.clamp == nullptr) context.kernels.swiglu(gate, up, inner, gate);
  else context.kernels.swiglu_clamped(gate, up, inner, *ffn.clamp, gate);
  return hidden.quantize_rows(context.kernels, row, 1, inner, context.rounding(down_type));
}

void finish_down(const BlockContext& context, const GatedFfn& ffn, std::size_t tokens, float* y,
                 std::size_t y_stride) {
  scale_rows(ffn.down_scale, ffn.down.rows, tokens, y, y_stride);
  add_bias(context, ffn.down_bias, ffn.down.rows, tokens, y, y_stride);
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
  std::atomic<bool> finite = true;
  constexpr std::size_t grain = 4;
  context.parallel.for_ranges(tokens, grain, [&](std::size_t begin, std::size_t end, unsigned) {
    for (std::size_t t = begin; t < end; ++t)
      if (!activate(context, ffn, down_type, hidden, hidden_first + t, up_buffer + t * inner))
        finite = false;
  });
  return finite;
}

void ffn_down(const BlockContext& context, const GatedFfn& ffn, const ActivationRows& hidden,
              std::size_t hidden_first, std::size_t tokens, float* y, std::size_t y_stride) {
  linear(context, ffn.down, hidden, hidden_first, tokens, y, y_stride);
  finish_down(context, ffn, tokens, y, y_stride);
}

bool run_ffn_rows(const BlockContext& context, std::span<const FfnRow> rows) {
  MILLRACE_CHECK(rows.size() <= ffn_rows_max);
  std::array<Product, 2 * ffn_rows_max> products;
  std::size_t count = 0;
  for (const FfnRow& row : rows) {
    products[count++] = {row.ffn.gate, row.x, row.x_row, row.hidden->row(row.hidden_row)};
    products[count++] = {row.ffn.up, row.x, row.x_row, row.up};
  }
  multiply(context, std::span(products).first(count));
  std::atomic<bool> finite = true;
  context.parallel.for_ranges(rows.size(), 1, [&](std::size_t begin, std::size_t end, unsigned) {
    for (const FfnRow& row : rows.subspan(begin, end - begin))
      if (!activate(context, row.ffn, row.ffn.down.type, *row.hidden, row.hidden_row, row.up))
        finite = false;
  });
  count = 0;
  for (const FfnRow& row : rows)
    products[count++] = {row.ffn.down, row.hidden, row.hidden_row, row.y};
  multiply(context, std::span(products).first(count));
  for (const FfnRow& row : rows) finish_down(context, row.ffn, 1, row.y, 0);
  return finite;
}

}  // namespace millrace
