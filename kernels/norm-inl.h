// RMS norm over an ISA policy; contract in kernel_table.h.
#pragma once

#include <cstddef>

#include "kernels/elementwise-inl.h"

namespace millrace {
namespace {

// The canonical float dot of x with itself: 16 accumulators and the tree.
template <class Isa>
float square_sum(const float* x, std::size_t count) {
  auto acc = Isa::zero();
  for_vectors(count, [&](std::size_t i, std::size_t lanes) {
    const auto v = load_lanes<Isa>(x + i, lanes);
    acc = Isa::fma(v, v, acc);
  });
  return Isa::tree_sum(acc);
}

// s = 1 / sqrt(dot(x, x) / count + eps), each operation rounded; y = fl(fl(x * s) * w).
template <class Isa>
void rms_norm(const float* x, const float* weight, float eps, std::size_t count, float* y) {
  if (count == 0) return;
  const float mean = square_sum<Isa>(x, count) / static_cast<float>(count);
  const auto factor = Isa::set1(1.0f / __builtin_sqrtf(mean + eps));
  for_vectors(count, [=](std::size_t i, std::size_t lanes) {
    const auto scaled = Isa::mul(load_lanes<Isa>(x + i, lanes), factor);
    store_lanes<Isa>(y + i, Isa::mul(scaled, load_lanes<Isa>(weight + i, lanes)), lanes);
  });
}

// s = 1 / max(sqrt(dot(x, x)), eps), each operation rounded; y = fl(x * s). A NaN gives NaN.
template <class Isa>
void l2_norm(const float* x, float eps, std::size_t count, float* y) {
  const float length = __builtin_sqrtf(square_sum<Isa>(x, count));
  const auto factor = Isa::set1(1.0f / (eps > length ? eps : length));
  for_vectors(count, [=](std::size_t i, std::size_t lanes) {
    store_lanes<Isa>(y + i, Isa::mul(load_lanes<Isa>(x + i, lanes), factor), lanes);
  });
}

}  // namespace
}  // namespace millrace
