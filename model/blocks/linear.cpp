#include "model/blocks/linear.h"

#include <algorithm>

#include "model/blocks/products.h"
#include "runtime/base/check.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

// Rows per range, so that a range is worth handing to another thread: about this many weight bytes
// times tokens.
constexpr std::size_t range_work_bytes = 96 * 1024;
// Float panels have four times the bytes of a token to bring into order for each range.
constexpr std::size_t float_panel_rows = 128;
// Panels bring all tokens into order for each range, so that a few ranges per thread are enough.
constexpr std::size_t panel_ranges_per_thread = 3;

std::size_t row_grain(const BlockContext& context, const Matrix& weights, std::size_t tokens,
                      bool panels) {
  const std::size_t row =
      weights.input_step > 0 ? dtype_row_bytes(weights.type, weights.columns) : weights.row_bytes;
  const std::size_t work = row * std::max<std::size_t>(1, tokens);
  // A column's rows lie together: two lines of the cache at least, or memory's order is lost.
  if (weights.type == DType::awq)
    return round_up(std::max<std::size_t>(1, range_work_bytes / work), 2 * awq_chunk_rows);
  const std::size_t least = std::max<std::size_t>(1, range_work_bytes / work);
  if (!panels) return round_up(least, 16);
  const std::size_t ranges = context.parallel.workers() * panel_ranges_per_thread;
  return round_up(std::max(least, (weights.rows + ranges - 1) / ranges), panel_tile_rows);
}

// Products of up to `tile_tokens` tokens with up to `tile_rows` rows of a matrix whose columns lie
// together: column by column, each of 16 accumulators per row taking every 16th. The sums, and
// their order, are those of the kernels that go by rows.
constexpr std::size_t tile_rows = 64, tile_tokens = 4, accumulators = 16;

class InputTile {
 public:
  InputTile(const KernelTable& kernels, const Matrix& weights)
      : kernels_(kernels), weights_(weights) {}

  void run(const F32Batch& x, std::size_t tokens, float* y, std::size_t y_stride) {
    const std::size_t rows = weights_.rows;
    std::fill_n(&sums_[0][0][0], tokens * accumulators * tile_rows, 0.0F);
    const std::size_t stretch = (rows - 1) * weights_.input_step + 1;
    const auto decode = kernels_.decode_row[static_cast<std::size_t>(weights_.type)];
    for (std::size_t column = 0; column < weights_.columns; ++column) {
      decode(weights_.data + column * weights_.row_bytes, stretch, values_);
      for (std::size_t row = 1; weights_.input_step > 1 && row < rows; ++row)
        values_[row] = values_[row * weights_.input_step];
      for (std::size_t t = 0; t < tokens; ++t)
        kernels_.add_scaled(values_, x.x[t * x.stride + column], rows,
                            sums_[t][column % accumulators]);
    }
    for (std::size_t t = 0; t < tokens; ++t) {
      for (std::size_t half = accumulators / 2; half > 0; half /= 2)
        for (std::size_t i = 0; i < half; ++i) kernels_.add(sums_[t][i + half], rows, sums_[t][i]);
      std::copy_n(sums_[t][0], rows, y + t * y_stride);
    }
  }

 private:
  const KernelTable& kernels_;
  const Matrix weights_;
  float values_[tile_rows * 2];
  float sums_[tile_tokens][accumulators][tile_rows];
};

void matmul_by_inputs(const KernelTable& kernels, const Matrix& weights, const F32Batch& x,
                      std::size_t tokens, float* y, std::size_t y_stride) {
  MILLRACE_CHECK(weights.input_step <= 2);
  for (std::size_t row = 0; row < weights.rows; row += tile_rows)
    for (std::size_t t = 0; t < tokens; t += tile_tokens)
      InputTile(kernels, weights.slice(row, std::min(tile_rows, weights.rows - row)))
          .run({x.x + t * x.stride, x.stride}, std::min(tile_tokens, tokens - t),
               y + t * y_stride + row, y_stride);
}

WeightRows row_range(const Matrix& weights, std::size_t begin, std::size_t end) {
  return weights.slice(begin, end - begin).view();
}

}  // namespace

void linear(const BlockContext& context, const Matrix& weights, const ActivationRows& x,
            std::size_t first, std::size_t tokens, float* y, std::size_t y_stride,
            std::size_t step) {
  MILLRACE_CHECK(weights.columns <= x.columns());
  if (tokens == 1 && weights.input_step == 0) {
    const Product alone{weights, &x, first, y};
    return multiply(context, {&alone, 1});
  }
  const auto id = static_cast<std::size_t>(weights.type);
  const PanelKernels* const panels = context.panels.kernels(weights.type, weights.columns, tokens);
  const auto run = [&](auto matmul, auto panel_matmul, const auto& batch) {
    MILLRACE_CHECK(matmul != nullptr);
    context.parallel.for_ranges(
        weights.rows, row_grain(context, weights, tokens, panel_matmul != nullptr),
        [&](std::size_t begin, std::size_t end, unsigned worker) {
          if (panel_matmul != nullptr)
            begin += panel_matmul(row_range(weights, begin, end), batch, tokens, y + begin,
                                  y_stride, context.panels.of(worker));
          if (begin < end)
            matmul(row_range(weights, begin, end), batch, tokens, y + begin, y_stride);
        });
  };
  switch (context.rounding(weights.type)) {
    case Rounding::blocks:
      return run(context.kernels.matmul_q8[id], panels == nullptr ? nullptr : panels->q8[id],
                 x.q8(first, step));
    case Rounding::supers:
      return run(context.kernels.matmul_q8_super[id],
                 panels == nullptr ? nullptr : panels->q8_super[id], x.q8_super(first, step));
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
  const bool by_inputs = weights.input_step > 0 && weights.scales == nullptr;
  const PanelKernels* const panels =
      by_inputs ? nullptr : context.panels.kernels(weights.type, weights.columns, tokens, true);
  const PanelF32 panel_matmul =
      panels == nullptr ? nullptr : panels->f32[static_cast<std::size_t>(weights.type)];
  const std::size_t grain = std::max(row_grain(context, weights, tokens, panel_matmul != nullptr),
                                     panel_matmul == nullptr ? 0 : std::size_t{float_panel_rows});
  context.parallel.for_ranges(
      weights.rows, grain, [&](std::size_t begin, std::size_t end, unsigned worker) {
        if (by_inputs)
          return matmul_by_inputs(context.kernels, weights.slice(begin, end - begin), batch, tokens,
                                  y + begin, y_stride);
        if (panel_matmul != nullptr)
          begin += panel_matmul(row_range(weights, begin, end), batch, tokens, y + begin, y_stride,
                                context.panels.of(worker));
        if (begin < end) matmul(row_range(weights, begin, end), batch, tokens, y + begin, y_stride);
      });
}

void add_bias(const BlockContext& context, const float* bias, std::size_t count, std::size_t tokens,
              float* y, std::size_t y_stride) {
  if (bias == nullptr) return;
  for (std::size_t t = 0; t < tokens; ++t) context.kernels.add(bias, count, y + t * y_stride);
}

}  // namespace millrace
