// RecurrentState: what the gated delta nets of one sequence keep: per layer the last inputs of the
// convolution and, per value head, a matrix. Float32, of fixed size whatever the context. It holds
// the state after the last token alone and cannot go back but to nothing. Owned by a session's
// SequenceState. Different heads and channels of a layer may be worked on by different threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "io/pinned_memory.h"
#include "model/hparams.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

class RecurrentState {
 public:
  // Nothing for models without delta nets. Fails with `memory` if the system refuses.
  static Result<RecurrentState> create(const Hparams& hparams);
  static std::uint64_t bytes(const Hparams& hparams) noexcept;

  // Before positions first .. first + count - 1 go through a layer: `first` is 0, which empties it,
  // or the position behind the last one.
  void begin(LayerIndex layer, std::uint32_t first, std::uint32_t count) noexcept;
  // Whether the sequence may go on from `position`.
  bool keeps(std::uint32_t position) const noexcept;
  // Becomes the state of `from`, of the same shape, behind whatever position it has.
  void copy_from(const RecurrentState& from) noexcept;

  // Inputs of the convolution at a position, `channels` of them; that of one of the last taps - 1.
  float* conv_row(LayerIndex layer, std::uint32_t position) noexcept;
  // The state of a value head: key_dim rows of value_dim.
  float* matrix(LayerIndex layer, std::uint32_t head) noexcept;

 private:
  struct Layer {
    float* data = nullptr;   // null: the layer has none. Rows of the convolution, then the matrices
    std::uint32_t next = 0;  // position behind the last one that went through
  };
  RecurrentState() = default;

  DeltaSizes sizes_;
  PinnedMemory memory_;
  std::vector<Layer> layers_;
};

}  // namespace millrace
