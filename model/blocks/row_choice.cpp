#include "model/blocks/row_choice.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace millrace {

namespace {

// Scores of rows first .. first + count - 1.
void score_rows(const KernelTable& kernels, const RowQuery& query, const CompressedRows& rows,
                std::size_t first, std::size_t count, float* products, float* scores) {
  const auto type = static_cast<std::size_t>(cache_rows::dtype(rows.type()));
  kernels.matmul_f32[type]({rows.row(first), rows.row_bytes(), count, rows.stride()},
                           {query.q, query.dim}, query.heads, products, row_choice_chunk);
  std::fill_n(scores, count, 0.0F);
  for (std::size_t head = 0; head < query.heads; ++head) {
    float* const product = products + head * row_choice_chunk;
    for (std::size_t i = 0; i < count; ++i)
      product[i] = product[i] < 0 ? 0 : product[i];  // a NaN stays
    kernels.add_scaled(product, query.weights[head], count, scores);
  }
}

}  // namespace

bool choose_rows(const BlockContext& context, const RowQuery& query, const CompressedRows& rows,
                 std::uint32_t visible, float* scores, std::uint32_t* order, float* scratch,
                 std::uint32_t* chosen) {
  context.parallel.for_ranges(
      visible, row_choice_chunk, [&](std::size_t begin, std::size_t end, unsigned worker) {
        float* const products = scratch + worker * row_choice_scratch_floats(query.heads);
        for (; begin < end; begin += row_choice_chunk)
          score_rows(context.kernels, query, rows, begin, std::min(row_choice_chunk, end - begin),
                     products, scores + begin);
      });
  if (!context.kernels.all_finite(scores, visible)) return false;
  std::iota(order, order + visible, 0u);
  std::nth_element(order, order + query.top_k, order + visible,
                   [&](std::uint32_t a, std::uint32_t b) {
                     return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
                   });
  std::copy_n(order, query.top_k, chosen);
  std::sort(chosen, chosen + query.top_k);
  return true;
}

}  // namespace millrace
