#include "model/blocks/products.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

// Rows are handed out in units of about so many weight bytes, a microsecond's reading: threads that
// are awake take one for a tenth of that.
constexpr std::size_t product_unit_bytes = 16 * 1024;
constexpr std::size_t unit_tile_rows = 16;  // a multiple of every kernel's

std::size_t product_unit_rows(const Matrix& weights) {
  const std::size_t rows = product_unit_bytes / std::max<std::size_t>(1, weights.row_bytes);
  return round_up(std::max<std::size_t>(1, rows), unit_tile_rows);
}

std::size_t product_units(const Matrix& weights) {
  const std::size_t each = product_unit_rows(weights);
  return (weights.rows + each - 1) / each;
}

// Rows [begin, end) of one product.
void multiply_rows(const BlockContext& context, const Product& product, std::size_t begin,
                   std::size_t end) {
  const Matrix& weights = product.weights;
  const auto id = static_cast<std::size_t>(weights.type);
  const WeightRows rows = weights.slice(begin, end - begin).view();
  float* const y = product.y + begin;
  switch (context.rounding(weights.type)) {
    case Rounding::blocks:
      return context.kernels.matmul_q8[id](rows, product.x->q8(product.row), 1, y, 0);
    case Rounding::supers:
      return context.kernels.matmul_q8_super[id](rows, product.x->q8_super(product.row), 1, y, 0);
    default:
      return context.kernels.matmul_f32[id](rows, product.x->f32(product.row), 1, y, 0);
  }
}

// Asks for the first bytes of what comes next, which no kernel sees coming: they arrive while it
// works on the matrix before.
void prefetch_start(const Matrix& weights) {
  constexpr std::size_t start_bytes = 4096, line_bytes = 64;
  const std::size_t bytes = std::min(start_bytes, weights.rows * weights.row_bytes);
  for (std::size_t at = 0; at < bytes; at += line_bytes)
    __builtin_prefetch(weights.data + at, 0, 2);
}

// Units [begin, end) of all products one after the other.
void multiply_units(const BlockContext& context, std::span<const Product> products,
                    std::size_t begin, std::size_t end) {
  std::size_t first = 0;  // unit of the product
  for (std::size_t i = 0; i < products.size() && first < end; ++i) {
    const Product& product = products[i];
    const std::size_t count = product_units(product.weights);
    if (first + count > begin) {
      const std::size_t rows = product_unit_rows(product.weights);
      const std::size_t from = std::max(begin, first) - first;
      const std::size_t to = std::min(end - first, count);
      if (to == count && i + 1 < products.size()) prefetch_start(products[i + 1].weights);
      multiply_rows(context, product, from * rows, std::min(to * rows, product.weights.rows));
    }
    first += count;
  }
}

}  // namespace

void multiply(const BlockContext& context, std::span<const Product> products) {
  std::size_t all = 0;
  bool by_rows = true;
  for (const Product& product : products) {
    MILLRACE_CHECK(product.weights.columns <= product.x->columns());
    all += product_units(product.weights);
    by_rows = by_rows && product.weights.input_step == 0;
  }
  if (!by_rows) {  // columns that lie together are linear()'s matter
    for (const Product& product : products)
      linear(context, product.weights, *product.x, product.row, 1, product.y, 0);
    return;
  }
  context.parallel.for_ranges(all, 1, [&](std::size_t begin, std::size_t end, unsigned) {
    multiply_units(context, products, begin, end);
  });
}

}  // namespace millrace
