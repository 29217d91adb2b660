// Several matrices times one row of activations each, their rows shared over the threads in one go:
// what a single token needs, whose matrices are too small to be shared out one by one. The bits are
// those of linear().
#pragma once

#include <cstddef>
#include <span>

#include "model/blocks/activations.h"
#include "model/blocks/linear.h"
#include "model/weights.h"

namespace millrace {

struct Product {
  Matrix weights;
  const ActivationRows* x;  // whose quantized twin that the weights take is up to date
  std::size_t row;
  float* y;  // weights.rows values
};

// No product may read what another one writes.
void multiply(const BlockContext& context, std::span<const Product> products);

}  // namespace millrace
