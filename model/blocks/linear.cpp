#include "model/blocks/linear.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

// Rows per range, so that a range is worth handing to another thread: about this many weight bytes
// times tokens.
constexpr std::size_t range_work_bytes = 96 * 1024;

std::size_t row_grain(const Matrix& weights, std::size_t tokens) {
  const std::size_t work = weights.row_bytes * std::max<std::size_t>(1, tokens);
  return round_up(std::max<std::size_t>(1, range_work_bytes / work), 16);
}

WeightRows row_range(const Matrix& weights, std::size_t begin, std::size_t end) {
  return weights.slice(begin, end - begin).view();
}

}  // namespace

void linear(const BlockContext& context, const Matrix& weights, const ActivationRows& x,
            std::size_t first, std::size_t tokens, float* y, std::size_t y_stride,
            std::size_t step) {
  MILLRACE_CHECK(weights.columns <= x.columns());
  const auto id = static_cast<std::size_t>(weights.type);
  const auto run = [&](auto matmul, const auto& batch) {
    MILLRACE_CHECK(matmul != nullptr);
    context.parallel.for_ranges(weights.rows, row_grain(weights, tokens),
                                [&](std::size_t begin, std::size_t end, unsigned) {
                                  matmul(row_range(weights, begin, end), batch, tokens, y + begin,
                                         y_stride);
                                });
  };
  switch (context.rounding(weights.type)) {
    case Rounding::blocks:
      return run(context.kernels.matmul_q8[id], x.q8(first, step));
    case Rounding::supers:
      return run(context.kernels.matmul_q8_super[id], x.q8_super(first, step));
    default:
      return linear_f32(context, weights, x, first, tokens, y, y_stride, step);
  }
}

void linear_f32(const BlockContext& context, const Matrix& weights, const ActivationRows& x,
                std::size_t first, std::size_t tokens, float* y, std::size_t y_stride,
                std::size_t step) {
  MILLRACE_CHECK(weights.columns <= x.columns());
  const MatmulF32 matmul = context.kernels.matmul_f32[static_cast<std::size_t>(weights.type)];
  MILLRACE_CHECK(matmul != nullptr);
  const F32Batch batch = x.f32(first, step);
  context.parallel.for_ranges(
      weights.rows, row_grain(weights, tokens), [&](std::size_t begin, std::size_t end, unsigned) {
        matmul(row_range(weights, begin, end), batch, tokens, y + begin, y_stride);
      });
}

void add_bias(const BlockContext& context, const float* bias, std::size_t count, std::size_t tokens,
              float* y, std::size_t y_stride) {
  if (bias == nullptr) return;
  for (std::size_t t = 0; t < tokens; ++t) context.kernels.add(bias, count, y + t * y_stride);
}

}  // namespace millrace
