// Least frequently asked for, with decay: a request counts half as much after `half_life` tokens.
// The decay is the same for all, so the order of two counts only changes when one is asked for: the
// key of an expert is the moment at which its count would have been one. Counts of evicted experts
// are kept. An event and a victim cost O(log slots).
#pragma once

#include <cstdint>
#include <vector>

#include "prefetch/eviction_policy.h"
#include "prefetch/policies/indexed_heap.h"
#include "prefetch/policies/walk_clock.h"

namespace millrace {

class LfuPolicy final : public EvictionPolicy {
 public:
  static constexpr double half_life_tokens = 6;

  const char* name() const noexcept override { return "lfu"; }
  void prepare(const PolicyShape& shape) override;
  void layer_asked(LayerIndex layer, std::uint32_t tokens) noexcept override {
    clock_.layer_asked(layer, tokens);
  }
  void inserted(SlotIndex slot, ExpertKey key, std::uint32_t tokens) noexcept override;
  void touched(SlotIndex slot, std::uint32_t tokens) noexcept override;
  void idle(SlotIndex slot) noexcept override;
  void removed(SlotIndex slot) noexcept override;
  SlotIndex victim(std::uint32_t group, LayerIndex layer) noexcept override;

 private:
  struct Slot {
    std::uint32_t group = 0;
    std::uint32_t expert = 0;  // index into moments_
    std::uint64_t asked = 0;   // when, as a count of requests
  };
  void note(Slot& slot, std::uint32_t tokens) noexcept;
  void leave(SlotIndex slot) noexcept;

  std::uint32_t experts_ = 0;
  std::uint64_t requests_ = 0;
  WalkClock clock_;
  std::vector<double> moments_;  // [layer][expert]: when its count would have been one, in tokens
  std::vector<Slot> slots_;
  IndexedHeap::Places places_;
  std::vector<IndexedHeap> idle_;  // by group
};

}  // namespace millrace
