// Least recently asked for, with a floor per layer. Recency is the order of requests, not of
// releases, so that hits do not depend on how long a computation took. Idle slots stand in one list
// per (group, layer); a heap per group orders the layers above their floor by their oldest slot: a
// victim costs O(1), an event O(log layers).
#pragma once

#include <cstdint>
#include <vector>

#include "prefetch/eviction_policy.h"

namespace millrace {

class LruPolicy final : public EvictionPolicy {
 public:
  const char* name() const noexcept override { return "lru"; }
  void prepare(const PolicyShape& shape) override;
  void layer_asked(LayerIndex, std::uint32_t) noexcept override {}
  void inserted(SlotIndex slot, ExpertKey key, std::uint32_t tokens) noexcept override;
  void touched(SlotIndex slot, std::uint32_t tokens) noexcept override;
  void idle(SlotIndex slot) noexcept override;
  void removed(SlotIndex slot) noexcept override;
  SlotIndex victim(std::uint32_t group, LayerIndex layer) noexcept override;
  void resized(std::uint32_t group, std::uint32_t slots,
               std::span<const std::uint32_t> floors) noexcept override;

 private:
  struct Node {
    std::uint64_t asked = 0;  // when, as a count of requests
    std::uint32_t group = 0;
    LayerIndex layer = 0;
    SlotIndex newer = no_slot;
    SlotIndex older = no_slot;
    bool is_idle = false;
  };
  struct LayerList {  // idle slots of one layer in one group
    SlotIndex newest = no_slot;
    SlotIndex oldest = no_slot;
    std::uint32_t residents = 0;  // busy ones too
    std::uint32_t floor = 0;
    std::int32_t heap_place = -1;  // in the group's heap; -1: nothing to give
  };

  LayerList& list(std::uint32_t group, LayerIndex layer) noexcept {
    return lists_[group * layers_ + layer];
  }
  std::uint64_t age_key(std::uint32_t group, LayerIndex layer) noexcept {
    return nodes_[static_cast<std::size_t>(list(group, layer).oldest)].asked;
  }
  Node& node(SlotIndex slot) noexcept { return nodes_[static_cast<std::size_t>(slot)]; }
  void link(SlotIndex slot) noexcept;
  void unlink(SlotIndex slot) noexcept;
  void refresh(std::uint32_t group, LayerIndex layer) noexcept;
  void sift(std::uint32_t group, std::size_t place) noexcept;
  void put(std::uint32_t group, std::size_t place, LayerIndex layer) noexcept;

  std::uint32_t layers_ = 0;
  std::uint64_t requests_ = 0;
  std::vector<Node> nodes_;                     // by slot
  std::vector<LayerList> lists_;                // [group][layer]
  std::vector<std::vector<LayerIndex>> heaps_;  // by group; oldest on top
};

}  // namespace millrace
