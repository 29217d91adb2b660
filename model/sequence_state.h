// SequenceState: all that a model keeps of one sequence, part by part; each part holds the layers
// that are of its kind. Owned by a session; blocks reach it through TokenPlace.
#pragma once

#include <cstdint>
#include <utility>

#include "model/hparams.h"
#include "model/kv_cache.h"
#include "model/recurrent_state.h"
#include "runtime/base/result.h"

namespace millrace {

struct SequenceState {
  KvCache kv;                // keys and values, or latents, per position
  RecurrentState recurrent;  // of delta nets

  // As KvCache::create and bytes, for all parts.
  static Result<SequenceState> create(const Hparams& hparams, std::uint32_t context, KvType type,
                                      std::uint32_t batch_tokens_max);
  static std::uint64_t bytes(const Hparams& hparams, std::uint32_t context, KvType type,
                             std::uint32_t batch_tokens_max) noexcept;
  // Whether the sequence may go on from `position`: all parts still have what that needs.
  bool keeps(std::uint32_t position) const noexcept {
    return kv.keeps(position) && recurrent.keeps(position);
  }
  // Becomes what `from`, of the same model and context, which keeps(position), has of the positions
  // below it.
  void copy_from(const SequenceState& from, std::uint32_t position) noexcept {
    kv.copy_from(from.kv, position);
    recurrent.copy_from(from.recurrent);
  }
};

}  // namespace millrace
