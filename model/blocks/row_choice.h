// Which pooled rows a token looks at, where more are visible than it may: those whose index rows
// suit it best. For index row r:
//   score_r = sum over heads h of w_h * max(0, q_h·r)     h ascending by fma, from +0
// The top_k highest are taken, ties to the lower row.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/blocks/linear.h"
#include "model/compressed_rows.h"

namespace millrace {

struct RowQuery {
  std::uint32_t heads = 0, dim = 0;
  std::uint32_t top_k = 0;
  const float* q = nullptr;        // heads x dim, and row_query_slack readable floats behind
  const float* weights = nullptr;  // per head
};
inline constexpr std::size_t row_query_slack = 32;   // rows of 8 bits are whole blocks
inline constexpr std::size_t row_choice_chunk = 64;  // rows that are scored together
constexpr std::size_t row_choice_scratch_floats(std::size_t heads) noexcept {
  return heads * row_choice_chunk;
}

// Chooses among the first `visible` rows, more than top_k: `chosen` gets top_k of them, ascending.
// `scores` and `order` take `visible` entries, `scratch` row_choice_scratch_floats() per worker.
// False if a score is NaN or infinite.
bool choose_rows(const BlockContext& context, const RowQuery& query, const CompressedRows& rows,
                 std::uint32_t visible, float* scores, std::uint32_t* order, float* scratch,
                 std::uint32_t* chosen);

}  // namespace millrace
