#include "runtime/prompt_sharing.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace millrace {

namespace {

std::size_t common_beginning(std::span<const TokenId> a, std::span<const TokenId> b) noexcept {
  const std::size_t most = std::min(a.size(), b.size());
  const auto parted =
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin());
  return static_cast<std::size_t>(parted.first - a.begin());
}

// The turn of prompt i if it waits for the first of those before it that will have most for it.
PromptTurn best_leader(std::span<const PromptPlace> prompts, std::size_t i) noexcept {
  const PromptPlace& own = prompts[i];
  PromptTurn best{.shared = own.done};
  for (std::size_t j = 0; j < i; ++j) {
    const std::size_t common = common_beginning(own.prompt, prompts[j].prompt);
    if (common == own.prompt.size() && common == prompts[j].prompt.size())
      return {.waits_for = j, .shared = common, .twin = true};
    const std::size_t shared = std::min(common, own.prompt.size() - 1);
    if (shared > best.shared && prompts[j].done < shared)
      best = {.waits_for = j, .shared = shared, .twin = false};
  }
  return best;
}

}  // namespace

std::size_t shared_tokens(std::span<const TokenId> prompt,
                          std::span<const TokenId> tokens) noexcept {
  MILLRACE_CHECK(!prompt.empty());
  return std::min(common_beginning(prompt, tokens), prompt.size() - 1);
}

void plan_turns(std::span<const PromptPlace> prompts, std::size_t saved_least,
                std::span<PromptTurn> turns) noexcept {
  MILLRACE_CHECK(turns.size() == prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) turns[i] = best_leader(prompts, i);
  const auto rest = [&](std::size_t i) { return prompts[i].prompt.size() - prompts[i].done; };
  for (std::size_t j = 0; j < prompts.size(); ++j) {
    const auto follows = [&](std::size_t i) { return turns[i].waits_for == j && !turns[i].twin; };
    std::size_t saved = 0;
    std::size_t parting = prompts[j].prompt.size();
    for (std::size_t i = j + 1; i < prompts.size(); ++i) {
      if (!follows(i)) continue;
      saved += turns[i].shared - prompts[i].done;
      parting = std::min(parting, turns[i].shared);
    }
    if (saved < saved_least) {  // they go on by themselves
      parting = prompts[j].prompt.size();
      for (std::size_t i = j + 1; i < prompts.size(); ++i)
        if (follows(i)) turns[i] = {};
    }
    // Whom it waits for itself came before.
    if (turns[j].waits_for == PromptTurn::nobody)
      turns[j].tokens = std::min(rest(j), parting - prompts[j].done);
  }
}

}  // namespace millrace
