// Prompts that begin alike: who takes the common beginning through the model, and who waits for it
// to take it over. Pure.
#pragma once

#include <cstddef>
#include <span>

#include "runtime/base/ids.h"

namespace millrace {

// A prompt that has not gone through yet.
struct PromptPlace {
  std::span<const TokenId> prompt;
  std::size_t done = 0;  // tokens of it that its session has; below its length
};

struct PromptTurn {
  static constexpr std::size_t nobody = static_cast<std::size_t>(-1);
  std::size_t tokens = 0;          // that go through in this step; 0: it waits
  std::size_t waits_for = nobody;  // an earlier prompt
  std::size_t shared = 0;          // its tokens that will be taken over
  bool twin = false;               // it is the same prompt: the logits are taken over too
};

// How many of a prompt's tokens a session that has `tokens` could give it: those that they begin
// with alike, but for the prompt's last one, whose logits are wanted.
std::size_t shared_tokens(std::span<const TokenId> prompt,
                          std::span<const TokenId> tokens) noexcept;

// Each prompt's turn in the next step: the first one of those that begin alike goes up to where
// they part, so that also a state that cannot go back can be taken over there, and the others wait.
// It costs a step more, and is done where it saves `saved_least` tokens; a copy of a prompt waits
// in any case. The first prompt never waits. `turns`: as many as prompts.
void plan_turns(std::span<const PromptPlace> prompts, std::size_t saved_least,
                std::span<PromptTurn> turns) noexcept;

}  // namespace millrace
