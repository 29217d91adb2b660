// A TinyModel of the family deepseek4: 4 layers, two of them with chosen rows, in the smallest
// sizes that differ from one another.
#pragma once

#include <cstdint>
#include <vector>

#include "tests/support/tiny_model.h"

namespace millrace::testing {

struct TinyDeepseek4 {
  static constexpr std::uint32_t layers = 4, width = 16, vocabulary = 32, heads = 4, head_dim = 8,
                                 rotary = 4, q_latent = 6, groups = 2, rank = 3, window = 4,
                                 index_heads = 2, index_dim = 8, index_top_k = 3, streams = 2,
                                 iterations = 20, experts = 8, used = 2, inner = 12, hashed = 1;
  std::vector<std::uint32_t> ratios = {0, 4, 8, 4};

  // The experts of a token in the first layer.
  static std::uint32_t hash_expert(std::uint32_t token, std::uint32_t rank_of_expert);
  TinyModel build() const;
};

}  // namespace millrace::testing
