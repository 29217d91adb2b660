// Plain, slow forms of the weight kernels: the oracle that tests and benches compare with, never a
// fallback. Written from the format's definition and the canonical order (kernel_table.h), with
// loops over elements and nothing shared with the kernels but the code table. Any thread; row
// pointers need no alignment; `columns` is a multiple of the type's block. Types without an entry
// abort.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace millrace::reference {

// The value of an IEEE half, exact.
double half_value(std::uint16_t half);

// The float64 definition of every element.
void decode_row(DType type, const std::byte* row, std::size_t columns, double* out);

// As KernelTable::quantize_q8, without the padding.
bool quantize_q8(const float* x, std::size_t columns, std::int8_t* q, float* scale,
                 std::int32_t* sum);

// As KernelTable::quantize_q8_super, without the padding.
bool quantize_q8_super(const float* x, std::size_t columns, std::int8_t* q, float* scale,
                       std::int16_t* sum);

// The canonical results, bit for bit; dot_q8 of either kind of quantized activations, whichever the
// type takes.
float dot_q8(DType type, const std::byte* row, std::size_t columns, const std::int8_t* q,
             const float* scale);
float dot_f32(DType type, const std::byte* row, std::size_t columns, const float* x);

// Sum of w[i] * x[i] in float64, and of its terms' magnitudes, to bound the rounding of others.
struct Dot64 {
  double sum;
  double magnitude;
};
Dot64 dot_f64(DType type, const std::byte* row, std::size_t columns, const double* x);

}  // namespace millrace::reference
