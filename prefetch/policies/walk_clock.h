// Time as policies count it: in tokens, and in walks through the layers. A walk begins when a layer
// is asked that does not lie behind the one before.
#pragma once

#include <cstdint>

#include "runtime/base/ids.h"

namespace millrace {

class WalkClock {
 public:
  void layer_asked(LayerIndex layer, std::uint32_t tokens) noexcept {
    if (walks_ == 0 || layer <= layer_) {
      ++walks_;
      tokens_ += tokens;
    }
    layer_ = layer;
    batch_ = tokens;
  }
  std::uint64_t walks() const noexcept { return walks_; }
  std::uint64_t tokens() const noexcept { return tokens_; }  // those of this walk included
  std::uint32_t batch() const noexcept { return batch_; }    // tokens of this call

 private:
  std::uint64_t walks_ = 0;
  std::uint64_t tokens_ = 0;
  std::uint32_t batch_ = 1;
  LayerIndex layer_ = 0;
};

}  // namespace millrace
