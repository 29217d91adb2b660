// S3-FIFO (Yang et al., SOSP 2023): three queues. What is new enters a small one; what was asked
// for again there moves to the main one, the rest leaves quickly and is remembered for a while, so
// that it enters the main queue when it comes back soon. Places in a queue do not change on hits.
// O(1) an event; a victim O(1) on average.
#pragma once

#include <cstdint>
#include <vector>

#include "prefetch/eviction_policy.h"

namespace millrace {

class S3FifoPolicy final : public EvictionPolicy {
 public:
  static constexpr std::uint32_t small_percent = 10;  // of a group's slots
  static constexpr std::uint8_t uses_max = 3;

  const char* name() const noexcept override { return "s3fifo"; }
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
  struct Slot {
    std::uint32_t group = 0;
    std::uint32_t expert = 0;  // index into left_at_
    SlotIndex newer = no_slot;
    SlotIndex older = no_slot;
    std::uint8_t uses = 0;  // since it came in or was passed over
    bool is_idle = false;
    bool in_main = false;
  };
  struct Queue {
    SlotIndex newest = no_slot;
    SlotIndex oldest = no_slot;
    std::uint32_t size = 0;
  };
  struct Group {
    Queue small, main;
    std::uint32_t slots = 0;
    std::uint64_t left = 0;  // experts that left the small queue
  };

  Slot& slot(SlotIndex index) noexcept { return slots_[static_cast<std::size_t>(index)]; }
  Queue& queue_of(const Slot& of) noexcept {
    return of.in_main ? groups_[of.group].main : groups_[of.group].small;
  }
  void push(SlotIndex index) noexcept;
  void unlink(SlotIndex index) noexcept;
  SlotIndex first_idle(const Group& group) noexcept;

  std::uint32_t experts_ = 0;
  std::vector<Slot> slots_;
  std::vector<Group> groups_;
  // [layer][expert]: Group::left when it left the small queue; 0: it did not.
  std::vector<std::uint64_t> left_at_;
};

}  // namespace millrace
