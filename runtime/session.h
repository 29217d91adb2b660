// Session: one conversation: its tokens so far and their KV cache. Made by Engine::new_session; the
// engine must outlive it. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/kv_cache.h"
#include "runtime/base/ids.h"

namespace millrace {

class Session {
 public:
  explicit Session(KvCache kv) : kv_(std::move(kv)) { tokens_.reserve(kv_.context()); }

  std::span<const TokenId> tokens() const noexcept { return tokens_; }  // processed, in order
  std::uint32_t context() const noexcept { return kv_.context(); }
  std::uint32_t room() const noexcept {
    return context() - static_cast<std::uint32_t>(tokens_.size());
  }
  // Forgets everything: the next token stands at position 0.
  void clear() noexcept { tokens_.clear(); }

 private:
  friend class Engine;
  // Back to the first `count` tokens, or to none where a windowed layer has moved past them.
  void rewind(std::size_t count) noexcept {
    tokens_.resize(kv_.keeps(static_cast<std::uint32_t>(count)) ? count : 0);
  }
  KvCache kv_;
  std::vector<TokenId> tokens_;
};

}  // namespace millrace
