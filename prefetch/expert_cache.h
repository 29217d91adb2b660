// Which experts are in memory: pure bookkeeping over numbered slots. Reads nothing, starts no
// thread, takes no lock, and allocates in the constructor only. Owned by the Loader, which calls it
// under its mutex; replay drives it without any bytes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "prefetch/eviction_policy.h"
#include "prefetch/slot_layout.h"
#include "prefetch/slot_plan.h"
#include "runtime/base/ids.h"

namespace millrace {

// CONTRACT's words: a request is a hit if its slot was ready when asked; requests for an expert
// that is still loading (joined) are misses too.
struct CacheCounters {
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t joined = 0;  // of the misses: shared another request's load
  std::uint64_t loads = 0;   // slots that were given to an absent expert
  std::uint64_t evictions = 0;
  std::uint64_t guesses = 0;       // slots that were given to a guess
  std::uint64_t guesses_used = 0;  // of them: asked for while they were there
};

// Tokens of a call whose tokens made so many choices, top-k each; at least one.
constexpr std::uint32_t call_tokens(std::uint64_t choices, std::uint32_t top_k) noexcept {
  const std::uint64_t each = top_k == 0 ? 1 : top_k;
  return choices <= each ? 1 : static_cast<std::uint32_t>((choices + each - 1) / each);
}

// Slots of a group that are kept for guesses: what is wanted, where at least twice top-k remain;
// none where each expert has a slot.
std::uint32_t spare_slots(const SlotGroup& group, std::uint32_t top_k,
                          std::uint32_t wanted) noexcept;
// How many are wanted of each group where anything is guessed: the experts of two layers.
constexpr std::uint32_t spare_slots_wanted(std::uint32_t top_k) noexcept { return 2 * top_k; }
// The plan that is left for what is asked for.
SlotPlan without_spares(SlotPlan plan, std::uint32_t top_k);

class ExpertCache {
 public:
  enum class State : std::uint8_t { absent, loading, ready, in_use };

  // Slots are numbered group by group of the plan. `top_k` sets the floors (layer_floors).
  // `spares`: slots wanted for guesses, of each group as spare_slots() has them.
  ExpertCache(const SlotLayout& layout, const SlotPlan& plan, std::uint32_t top_k,
              std::unique_ptr<EvictionPolicy> policy, std::uint32_t spares = 0);

  // A call of `layer` for `tokens` tokens begins; its requests follow.
  void begin(LayerIndex layer, std::uint32_t tokens) noexcept {
    layer_ = layer;
    policy_->layer_asked(layer, tokens);
  }
  // A new request, by `tokens` tokens of the call: counts it, and claims the expert's slot if it is
  // ready (hit) or loading (joined). no_slot: absent, a miss; assign() may follow.
  struct Asked {
    SlotIndex slot = no_slot;
    bool hit = false;
  };
  Asked ask(ExpertKey key, std::uint32_t tokens = 1) noexcept;
  // Gives an absent expert a slot, in state loading and claimed once: a free one, or that of an
  // evicted expert. Slots with claims or loads are never taken. no_slot: none can be had now, ask
  // again when release() or finish() returned true for the group.
  SlotIndex assign(ExpertKey key, std::uint32_t tokens = 1) noexcept;
  // Claims a loading expert for a request that was counted as absent before.
  SlotIndex join(ExpertKey key, std::uint32_t tokens = 1) noexcept;

  // Gives an absent expert a spare slot, in state loading and unclaimed: an empty one, or that of
  // the oldest guess that was not used. Nothing else is evicted. no_slot: all are loading, or there
  // are none. The first ask() makes it an expert like any other: the next slot that is let go
  // of, or that of the policy's victim, becomes a spare instead, as if it had been a miss.
  SlotIndex guess(ExpertKey key) noexcept;
  bool is_guess(SlotIndex slot) const noexcept { return at(slot).guess; }
  // The reads of a guess that is loading were all taken back: it is absent, its slot empty.
  void withdraw(SlotIndex slot) noexcept;
  // Slots of a group's guesses and empty spares; no_slot where one is owed.
  std::span<const SlotIndex> spares(std::uint32_t group) const noexcept { return spares_[group]; }

  // The load went wrong: the expert is absent at once (the next request tries again); the slot
  // stays occupied until finish() and the last release().
  void fail(SlotIndex slot) noexcept;
  // Nothing writes into the slot any more: ready, unless it failed. True: it can be assigned.
  bool finish(SlotIndex slot) noexcept;
  // Drops a claim. True: the slot can be assigned now.
  bool release(SlotIndex slot) noexcept;

  // The pool shrinks: slots first .. first + count, all of one group, are given up. Those that are
  // empty or idle at once (their experts are absent then), those with claims or loads when these
  // are gone. slots_least() of the group stay (checked). The floors follow.
  void retire(SlotIndex first, std::uint32_t count);
  bool retired(SlotIndex slot) const noexcept { return at(slot).phase == Phase::retired; }
  // The pool grows: retired slots are back, empty.
  void restore(SlotIndex first, std::uint32_t count);
  // Slots of a group that are not given up; the fewest there may be: top-k, and the spares.
  std::uint32_t slots(std::uint32_t group) const noexcept { return sizes_[group].slots; }
  std::uint32_t slots_least(std::uint32_t group) const noexcept { return sizes_[group].least; }

  State state(ExpertKey key) const noexcept;
  // Slot of an expert that is not absent.
  SlotIndex find(ExpertKey key) const noexcept { return slot_of_[layout_.index(key)]; }
  std::uint32_t group(ExpertKey key) const noexcept {
    return group_of_class_[layout_.at(key).slot_class];
  }
  std::uint32_t group(SlotIndex slot) const noexcept { return at(slot).group; }
  std::uint32_t groups() const noexcept { return static_cast<std::uint32_t>(free_.size()); }
  // Of all groups, those that were given up included.
  std::uint32_t slots() const noexcept { return static_cast<std::uint32_t>(slots_.size()); }
  const CacheCounters& counters() const noexcept { return counters_; }
  const EvictionPolicy& policy() const noexcept { return *policy_; }

 private:
  enum class Phase : std::uint8_t { free, loading, ready, failing, failed, retired };
  struct Size {  // of a group
    std::uint32_t slots = 0;
    std::uint32_t least = 0;
    std::vector<LayerIndex> members;  // layers that have experts in it
  };
  struct Slot {
    ExpertKey key;
    std::uint32_t group = 0;
    std::uint32_t claims = 0;
    Phase phase = Phase::free;
    bool guess = false;
    bool leaving = false;       // to be retired when nothing holds it
    std::uint64_t guessed = 0;  // when, as a count of guesses
    SlotIndex next_free = no_slot;
  };
  Slot& at(SlotIndex slot) noexcept { return slots_[static_cast<std::size_t>(slot)]; }
  const Slot& at(SlotIndex slot) const noexcept { return slots_[static_cast<std::size_t>(slot)]; }
  std::vector<std::uint32_t> floors(std::uint32_t group) const;
  void resize(std::uint32_t group, std::uint32_t slots);
  void drop_leaving_free(std::uint32_t group) noexcept;
  void vacate(SlotIndex slot) noexcept;
  void set_free(SlotIndex slot) noexcept;
  void set_empty(SlotIndex slot) noexcept;
  SlotIndex take_victim(std::uint32_t group, LayerIndex layer) noexcept;
  void promote(SlotIndex slot, std::uint32_t tokens) noexcept;
  void repay(std::uint32_t group) noexcept;
  bool available(SlotIndex slot) noexcept;
  void claim(SlotIndex slot, std::uint32_t tokens) noexcept;

  const SlotLayout& layout_;
  std::vector<std::uint32_t> group_of_class_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::vector<SlotIndex> slot_of_;  // by SlotLayout::index
  std::vector<Slot> slots_;
  std::uint32_t top_k_;
  std::vector<Size> sizes_;                     // by group
  std::vector<SlotIndex> free_;                 // head of each group's free slots
  std::vector<std::vector<SlotIndex>> spares_;  // by group
  LayerIndex layer_ = 0;                        // of the latest call
  CacheCounters counters_;
};

}  // namespace millrace
