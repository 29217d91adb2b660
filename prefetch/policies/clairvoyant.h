// Belady's choice: the expert that is asked for again latest. Knows the calls to come, so it exists
// in replay only, where it bounds what any policy can reach. Floors do not concern it. O(log slots)
// an event.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "prefetch/eviction_policy.h"
#include "prefetch/policies/indexed_heap.h"
#include "prefetch/routing_record.h"

namespace millrace {

class ClairvoyantPolicy final : public EvictionPolicy {
 public:
  // The calls to come, in order; read by prepare() only.
  explicit ClairvoyantPolicy(std::span<const RoutingCall> calls) : calls_(calls) {}

  const char* name() const noexcept override { return "belady"; }
  void prepare(const PolicyShape& shape) override;
  void layer_asked(LayerIndex, std::uint32_t) noexcept override { ++call_; }
  void inserted(SlotIndex slot, ExpertKey key, std::uint32_t tokens) noexcept override;
  void touched(SlotIndex slot, std::uint32_t tokens) noexcept override;
  void idle(SlotIndex slot) noexcept override;
  void removed(SlotIndex slot) noexcept override { leave(slot); }
  SlotIndex victim(std::uint32_t group, LayerIndex layer) noexcept override;

 private:
  struct Slot {
    std::uint32_t group = 0;
    std::uint32_t expert = 0;  // index into uses_
  };
  struct Uses {
    std::vector<std::uint32_t> calls;  // that ask for it, ascending, counted from 1
    std::size_t next = 0;
  };
  void leave(SlotIndex slot) noexcept;

  std::span<const RoutingCall> calls_;
  std::uint32_t experts_ = 0;
  std::uint32_t call_ = 0;
  std::vector<Uses> uses_;  // [layer][expert]
  std::vector<Slot> slots_;
  IndexedHeap::Places places_;
  std::vector<IndexedHeap> idle_;  // by group; the latest next use on top
};

}  // namespace millrace
