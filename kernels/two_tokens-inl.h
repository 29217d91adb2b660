// Two tokens of a type whose codes unpack quickly: one after the other, so many rows at a time that
// the second finds them in the second-level cache. On every x86 ISA that is faster than to unpack
// once for both (kernels/README.md).
#pragma once

#include <cstddef>

#include "kernels/kernel_table.h"

namespace millrace {
namespace {

template <class Format>
inline constexpr bool unpacks_quickly = !requires {
  requires Format::slow_codes;
};

// Calls product(rows, offset of the first of them, token).
template <class Product>
[[gnu::always_inline]] inline void two_tokens(const WeightRows& weights, Product product) {
  constexpr std::size_t bytes_at_once = 128 * 1024;
  const std::size_t fit = bytes_at_once / (weights.row_bytes + 1) / 16 * 16;
  const std::size_t at_once = fit < 16 ? 16 : fit;
  for (std::size_t row = 0; row < weights.rows; row += at_once) {
    WeightRows part = weights;
    part.data += row * weights.row_bytes;
    part.rows = weights.rows - row < at_once ? weights.rows - row : at_once;
    for (std::size_t token = 0; token < 2; ++token) product(part, row, token);
  }
}

}  // namespace
}  // namespace millrace
