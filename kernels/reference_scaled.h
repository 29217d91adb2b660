// Plain, slow forms of the kernels for types whose scales lie apart from their codes, as
// reference.h has them for the others: for tests, never a fallback. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kernel_table.h"

namespace millrace::reference {

// The float64 definition of every element of row `row`: the code's value times its scale.
void decode_scaled(DType type, const WeightRows& weights, std::size_t row, double* out);

// The canonical results, bit for bit. dot_scaled_q8: of activations quantized per 32 values (fp4).
float dot_scaled_f32(DType type, const WeightRows& weights, std::size_t row, const float* x);
float dot_scaled_q8(const WeightRows& weights, std::size_t row, const std::int8_t* q,
                    const float* scale);
// The same of AWQ: a block's sum is of (code - zero) * q.
float dot_awq_q8(const WeightRows& weights, std::size_t row, const std::int8_t* q,
                 const float* scale);

}  // namespace millrace::reference
