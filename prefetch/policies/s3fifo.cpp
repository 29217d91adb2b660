#include "prefetch/policies/s3fifo.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace millrace {

void S3FifoPolicy::prepare(const PolicyShape& shape) {
  experts_ = shape.experts;
  slots_.assign(shape.group_of_slot.size(), Slot{});
  groups_.assign(shape.floors.size(), Group{});
  for (std::size_t index = 0; index < slots_.size(); ++index) {
    slots_[index].group = shape.group_of_slot[index];
    ++groups_[slots_[index].group].slots;
  }
  left_at_.assign(std::size_t{shape.layers} * experts_, 0);
}

void S3FifoPolicy::inserted(SlotIndex index, ExpertKey key, std::uint32_t /*tokens*/) noexcept {
  Slot& of = slot(index);
  const Group& group = groups_[of.group];
  of.expert = key.layer * experts_ + key.expert;
  of.uses = 0;
  of.is_idle = false;
  // Remembered as long as as many others have left as the cache holds.
  const std::uint64_t left = left_at_[of.expert];
  of.in_main = left != 0 && group.left - left < group.slots;
  push(index);
}

void S3FifoPolicy::touched(SlotIndex index, std::uint32_t /*tokens*/) noexcept {
  Slot& of = slot(index);
  of.uses = std::min<std::uint8_t>(uses_max, of.uses + 1);
  of.is_idle = false;
}

void S3FifoPolicy::idle(SlotIndex index) noexcept { slot(index).is_idle = true; }

void S3FifoPolicy::removed(SlotIndex index) noexcept {
  Slot& of = slot(index);
  if (!of.in_main) left_at_[of.expert] = ++groups_[of.group].left;
  unlink(index);
  of.is_idle = false;
}

void S3FifoPolicy::push(SlotIndex index) noexcept {
  Slot& of = slot(index);
  Queue& queue = queue_of(of);
  of.older = queue.newest;
  of.newer = no_slot;
  (queue.newest == no_slot ? queue.oldest : slot(queue.newest).newer) = index;
  queue.newest = index;
  ++queue.size;
}

void S3FifoPolicy::unlink(SlotIndex index) noexcept {
  Slot& of = slot(index);
  Queue& queue = queue_of(of);
  (of.newer == no_slot ? queue.newest : slot(of.newer).older) = of.older;
  (of.older == no_slot ? queue.oldest : slot(of.older).newer) = of.newer;
  --queue.size;
}

// Every step takes a use away, moves a slot to the main queue, or passes over a busy one: bounded.
SlotIndex S3FifoPolicy::victim(std::uint32_t in, LayerIndex /*layer*/) noexcept {
  Group& group = groups_[in];
  const std::uint64_t steps_max = std::uint64_t{group.slots} * (uses_max + 3);
  std::uint32_t small_busy = 0;
  for (std::uint64_t step = 0; step < steps_max; ++step) {
    const bool small_is_full =
        std::uint64_t{group.small.size} * 100 >= std::uint64_t{group.slots} * small_percent;
    const bool small_gives = small_busy < group.small.size;
    const bool from_small = small_gives && (small_is_full || group.main.size == 0);
    if (!from_small && group.main.size == 0) break;
    const SlotIndex oldest = from_small ? group.small.oldest : group.main.oldest;
    Slot& of = slot(oldest);
    if (of.is_idle && of.uses == 0) return oldest;
    unlink(oldest);
    if (!of.is_idle) {
      small_busy += from_small ? 1 : 0;
    } else if (from_small) {
      of.in_main = true;
      of.uses = 0;
    } else {
      --of.uses;
    }
    push(oldest);
  }
  return first_idle(group);
}

void S3FifoPolicy::resized(std::uint32_t group, std::uint32_t slots,
                           std::span<const std::uint32_t> /*floors*/) noexcept {
  groups_[group].slots = slots;
}

// With most slots busy, whichever is not.
SlotIndex S3FifoPolicy::first_idle(const Group& group) noexcept {
  for (const Queue* queue : {&group.main, &group.small})
    for (SlotIndex index = queue->oldest; index != no_slot; index = slot(index).newer)
      if (slot(index).is_idle) return index;
  return no_slot;
}

}  // namespace millrace
