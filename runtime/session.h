// Session: one conversation: its tokens so far and what the model keeps of them. Made by
// Engine::new_session; the engine must outlive it. One thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/sequence_state.h"
#include "runtime/base/ids.h"

namespace millrace {

class Session {
 public:
  explicit Session(SequenceState state) : state_(std::move(state)) {
    tokens_.reserve(state_.kv.context());
  }

  std::span<const TokenId> tokens() const noexcept { return tokens_; }  // processed, in order
  std::uint32_t context() const noexcept { return state_.kv.context(); }
  std::uint32_t room() const noexcept {
    return context() - static_cast<std::uint32_t>(tokens_.size());
  }
  // Whether a session can go on from the first `count` of the tokens: not where a sliding window or
  // a recurrent state has moved on.
  bool keeps(std::size_t count) const noexcept {
    return count <= tokens_.size() && state_.keeps(static_cast<std::uint32_t>(count));
  }
  // Becomes the first `count` tokens of `from`, of the same engine, which keeps(count), as if they
  // had gone through the model here. Going back within itself (`from` is this) copies nothing.
  void take_over(const Session& from, std::size_t count) {
    if (&from != this) {
      state_.copy_from(from.state_, static_cast<std::uint32_t>(count));
      tokens_.assign(from.tokens_.begin(),
                     from.tokens_.begin() + static_cast<std::ptrdiff_t>(count));
    } else {
      rewind(count);
    }
  }
  // Forgets everything: the next token stands at position 0.
  void clear() noexcept { rewind(0); }

 private:
  friend class Engine;
  friend class TogetherCursor;
  void append(std::span<const TokenId> tokens) {
    tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  }
  // Back to the first `count` tokens, or to none where a layer's state is past them for good.
  void rewind(std::size_t count) noexcept {
    if (!state_.keeps(static_cast<std::uint32_t>(count))) count = 0;
    state_.replace_from(static_cast<std::uint32_t>(count));
    tokens_.resize(count);
  }
  SequenceState state_;
  std::vector<TokenId> tokens_;
};

}  // namespace millrace
