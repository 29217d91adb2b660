// Activations to 8 bits, per 256 values, over an ISA policy.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace {
namespace {

// One super-block. False if a value is NaN or infinite.
template <class Isa>
bool quantize_super_block(const float* x, std::int8_t* q, float* scale, std::int16_t* sum) {
  constexpr float smallest = 0x1p-100f;  // below it the block counts as zero
  // Magnitudes order like their bits, and NaN and infinity lie above every finite value.
  const auto magnitude = Isa::set1_i(0x7fffffff);
  auto largest_bits = Isa::zero_i();
  for (std::size_t i = 0; i < 256; i += 16)
    largest_bits = Isa::max_i(largest_bits, Isa::and_i(Isa::bits(Isa::load(x + i)), magnitude));
  const auto most = Isa::tree_max_i(largest_bits);
  if (most >= 0x7f800000) return false;
  const float largest = __builtin_bit_cast(float, most);
  const bool empty = largest < smallest;
  const auto factor = Isa::set1(empty ? 0.0f : 127.0f / largest);
  typename Isa::I32x16 quads[4];
  for (std::size_t i = 0; i < 4; ++i) {
    typename Isa::I32x16 units[4];
    for (std::size_t j = 0; j < 4; ++j) {
      const std::size_t at = 64 * i + 16 * j;
      units[j] = Isa::to_i32(Isa::mul(Isa::load(x + at), factor));
      Isa::store_i8(q + at, units[j]);
    }
    quads[i] = Isa::reduce_quads(units);
  }
  Isa::store_words(sum, Isa::reduce_lanes(quads));
  *scale = empty ? 0.0f : largest / 127.0f;
  return true;
}

template <class Isa>
bool quantize_q8_super(const float* x, std::size_t columns, std::int8_t* q, float* scale,
                       std::int16_t* sum) {
  const std::size_t blocks = columns / 256;
  for (std::size_t b = 0; b < blocks; ++b)
    if (!quantize_super_block<Isa>(x + 256 * b, q + 256 * b, scale + b, sum + 16 * b)) return false;
  for (std::size_t b = blocks; b < q8_super_stride(columns) / 256; ++b) scale[b] = 0.0f;
  return true;
}

}  // namespace
}  // namespace millrace
