#include "model/sequence_state.h"

#include <atomic>

namespace millrace {

Lineage Lineage::begin() noexcept {
  static std::atomic<std::uint64_t> lines{0};
  return {.line = ++lines};
}

Result<SequenceState> SequenceState::create(const Hparams& hparams, std::uint32_t context,
                                            KvType type, std::uint32_t batch_tokens_max) {
  MILLRACE_ASSIGN(KvCache kv, KvCache::create(hparams, context, type, batch_tokens_max));
  MILLRACE_ASSIGN(RecurrentState recurrent, RecurrentState::create(hparams));
  return SequenceState{.kv = std::move(kv), .recurrent = std::move(recurrent)};
}

std::uint64_t SequenceState::bytes(const Hparams& hparams, std::uint32_t context, KvType type,
                                   std::uint32_t batch_tokens_max) noexcept {
  return KvCache::bytes(hparams, context, type, batch_tokens_max) + RecurrentState::bytes(hparams);
}

}  // namespace millrace
