// Numbers that must not be mixed up.
#pragma once

#include <cstdint>

namespace millrace {

using TokenId = std::int32_t;       // index into the vocabulary, >= 0
using LayerIndex = std::uint32_t;   // 0 .. layer count - 1
using ExpertIndex = std::uint32_t;  // 0 .. experts of the layer - 1

// One routed expert of one layer.
struct ExpertKey {
  LayerIndex layer = 0;
  ExpertIndex expert = 0;
  friend bool operator==(const ExpertKey&, const ExpertKey&) = default;
};

}  // namespace millrace
