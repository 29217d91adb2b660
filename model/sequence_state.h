// SequenceState: all that a model keeps of one sequence, part by part; each part holds the layers
// that are of its kind. Owned by a session; blocks reach it through TokenPlace.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "model/hparams.h"
#include "model/kv_cache.h"
#include "model/recurrent_state.h"
#include "runtime/base/result.h"

namespace millrace {

// Which sequences begin alike, so that attention reads the rows of their beginning once for all of
// them: two of the same line have the same rows of positions below the smaller `positions`.
struct Lineage {
  static constexpr std::uint32_t all = UINT32_MAX;
  std::uint64_t line = 0;         // a number of its own for each sequence that began by itself
  std::uint32_t positions = all;  // all: it is the one that began, and has only grown

  static Lineage begin() noexcept;  // any thread
};

struct SequenceState {
  KvCache kv;                // keys and values, or latents, per position
  RecurrentState recurrent;  // of delta nets
  Lineage lineage = Lineage::begin();

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
    lineage = {from.lineage.line, std::min(from.lineage.positions, position)};
  }
  // What comes next replaces the positions from `position` on.
  void replace_from(std::uint32_t position) noexcept {
    if (position == 0) lineage = Lineage::begin();
    lineage.positions = std::min(lineage.positions, position == 0 ? Lineage::all : position);
  }
};

}  // namespace millrace
