// Activations to 8 bits, per 32 values, over an ISA policy.
#pragma once

#include "kernels/blocks.h"
#include "kernels/kernel_table.h"

namespace millrace {
namespace {

// One block of 32. False if a value is NaN or infinite.
template <class Isa>
[[gnu::always_inline]] inline bool quantize_block(const float* x, std::int8_t* q, float* scale,
                                                  std::int32_t* sum) {
  constexpr float smallest = 0x1p-100f;  // below it the block counts as zero
  const auto low = Isa::load(x);
  const auto high = Isa::load(x + 16);
  // Magnitudes order like their bits, and NaN and infinity lie above every finite value.
  const auto magnitude = Isa::set1_i(0x7fffffff);
  const auto most = Isa::tree_max_i(
      Isa::max_i(Isa::and_i(Isa::bits(low), magnitude), Isa::and_i(Isa::bits(high), magnitude)));
  if (most >= 0x7f800000) return false;
  const float largest = __builtin_bit_cast(float, most);
  const bool empty = largest < smallest;
  const auto factor = Isa::set1(empty ? 0.0f : 127.0f / largest);
  const auto q_low = Isa::to_i32(Isa::mul(low, factor));
  const auto q_high = Isa::to_i32(Isa::mul(high, factor));
  Isa::store_i8(q, q_low);
  Isa::store_i8(q + 16, q_high);
  *scale = empty ? 0.0f : largest / 127.0f;
  *sum = Isa::sum_i(Isa::add_i(q_low, q_high));
  return true;
}

template <class Isa>
bool quantize_q8(const float* x, std::size_t columns, std::int8_t* q, float* scale,
                 std::int32_t* sum) {
  const std::size_t blocks = columns / 32;
  for (std::size_t b = 0; b < blocks; ++b)
    if (!quantize_block<Isa>(x + 32 * b, q + 32 * b, scale + b, sum + b)) return false;
  for (std::size_t b = blocks; b < q8_stride(columns) / 32; ++b) {
    for (std::size_t i = 0; i < 2; ++i) Isa::store_i8(q + 32 * b + 16 * i, Isa::zero_i());
    scale[b] = 0.0f;
    sum[b] = 0;
  }
  return true;
}

// Rows of the KV cache: whole blocks, zeros behind the last value.
template <class Isa>
void to_q8_0(const float* x, std::size_t count, std::byte* out) {
  for (std::size_t i = 0; i < count; i += 32, out += sizeof(BlockQ8_0)) {
    const std::size_t left = count - i;
    alignas(64) float padded[32] = {};
    if (left < 32) __builtin_memcpy(padded, x + i, left * sizeof(float));
    BlockQ8_0 block{};
    float scale;
    std::int32_t sum;
    if (!quantize_block<Isa>(left < 32 ? padded : x + i, block.q, &scale, &sum))
      scale = __builtin_nanf("");
    Isa::store_f16_first(&block.d, Isa::set1(scale), 1);
    __builtin_memcpy(out, &block, sizeof block);
  }
}

}  // namespace
}  // namespace millrace
