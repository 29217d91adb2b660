#include "prefetch/replay.h"

#include <algorithm>
#include <random>

#include "runtime/base/check.h"

namespace millrace {
namespace {

// One run over the calls.
class Replay {
 public:
  Replay(const SlotLayout& layout, const SlotPlan& plan, std::uint32_t top_k,
         std::unique_ptr<EvictionPolicy> policy)
      : layout_(layout),
        top_k_(top_k),
        cache_(layout, plan, top_k, std::move(policy)),
        known_(layout.experts(), false) {}

  // As Loader::request() and the releases that follow it: what is present is claimed first, then
  // the missing get slots in the order asked.
  CallCounts call(const RoutingCall& of) {
    CallCounts counts;
    std::uint64_t choices = 0;
    for (const std::uint32_t tokens : of.chosen_by) choices += tokens;
    cache_.begin(of.layer, call_tokens(choices, top_k_));
    missing_.clear();
    for (std::size_t i = 0; i < of.experts.size(); ++i) {
      const ExpertKey key{of.layer, of.experts[i]};
      const ExpertCache::Asked asked = cache_.ask(key, of.chosen_by[i]);
      ++(asked.hit ? counts.hits : counts.misses);
      if (asked.hit) held_.push_back(asked.slot);
      else missing_.push_back(i);
    }
    for (const std::size_t i : missing_) {
      const ExpertKey key{of.layer, of.experts[i]};
      load(key, of.chosen_by[i]);
      counts.miss_bytes += layout_.at(key).read_bytes();
      counts.compulsory += known_[layout_.index(key)] ? 0 : 1;
      known_[layout_.index(key)] = true;
    }
    let_go();
    return counts;
  }

 private:
  void load(ExpertKey key, std::uint32_t tokens) {
    SlotIndex slot = cache_.assign(key, tokens);
    if (slot == no_slot) {
      let_go();
      slot = cache_.assign(key, tokens);
    }
    MILLRACE_CHECK(slot != no_slot);
    cache_.finish(slot);
    held_.push_back(slot);
  }
  void let_go() {
    for (const SlotIndex slot : held_) cache_.release(slot);
    held_.clear();
  }

  const SlotLayout& layout_;
  std::uint32_t top_k_;
  ExpertCache cache_;
  std::vector<bool> known_;
  std::vector<SlotIndex> held_;
  std::vector<std::size_t> missing_;
};

MatrixExtent slice(std::uint64_t offset, std::uint64_t bytes) {
  return {.type = DType::f32,
          .file = 0,
          .offset_bytes = offset,
          .row_bytes = bytes,
          .rows = 1,
          .columns = 1};
}

}  // namespace

std::vector<CallCounts> replay_calls(std::span<const RoutingCall> calls, const SlotLayout& layout,
                                     const SlotPlan& plan, std::uint32_t top_k,
                                     std::unique_ptr<EvictionPolicy> policy) {
  Replay replay(layout, plan, top_k, std::move(policy));
  std::vector<CallCounts> counts;
  counts.reserve(calls.size());
  for (const RoutingCall& call : calls) counts.push_back(replay.call(call));
  return counts;
}

std::vector<RoutingCall> shuffled_calls(std::span<const RoutingCall> calls, std::uint32_t seed) {
  std::vector<std::size_t> walks;  // where each begins
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (i == 0 || calls[i].layer <= calls[i - 1].layer) walks.push_back(i);
  std::vector<std::size_t> order(walks.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  // Written out: std::shuffle draws differently in other libraries.
  std::mt19937 random(seed);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random() % i]);
  std::vector<RoutingCall> made;
  made.reserve(calls.size());
  for (const std::size_t walk : order) {
    const std::size_t end = walk + 1 < walks.size() ? walks[walk + 1] : calls.size();
    made.insert(made.end(), calls.begin() + static_cast<std::ptrdiff_t>(walks[walk]),
                calls.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return made;
}

ExpertExtents extents_of_shape(const std::vector<bool>& routed_layers, std::uint32_t experts,
                               std::uint64_t expert_bytes) {
  const std::uint64_t third = std::max<std::uint64_t>(1, expert_bytes / 3);
  const std::uint64_t rest = expert_bytes > 2 * third ? expert_bytes - 2 * third : 1;
  std::uint64_t at = 0;
  std::vector<std::vector<ExpertExtent>> layers(routed_layers.size());
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    for (std::uint32_t i = 0; routed_layers[layer] && i < experts; ++i) {
      layers[layer].push_back(
          {slice(at, third), slice(at + third, third), slice(at + 2 * third, rest)});
      at += 2 * third + rest;
    }
  }
  return ExpertExtents(std::move(layers));
}

}  // namespace millrace
