#include "prefetch/policies/lfu.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace millrace {

void LfuPolicy::prepare(const PolicyShape& shape) {
  experts_ = shape.experts;
  requests_ = 0;
  clock_ = WalkClock();
  moments_.assign(std::size_t{shape.layers} * experts_, -std::numeric_limits<double>::infinity());
  slots_.assign(shape.group_of_slot.size(), Slot{});
  places_.assign(slots_.size(), -1);
  idle_.assign(shape.floors.size(), IndexedHeap());
  std::vector<std::size_t> sizes(idle_.size(), 0);
  for (std::size_t slot = 0; slot < slots_.size(); ++slot)
    ++sizes[slots_[slot].group = shape.group_of_slot[slot]];
  for (std::size_t group = 0; group < idle_.size(); ++group) idle_[group].reserve(sizes[group]);
}

// The count is 2^((moment - now) / half-life).
void LfuPolicy::note(Slot& slot, std::uint32_t tokens) noexcept {
  double& moment = moments_[slot.expert];
  const auto now = static_cast<double>(clock_.tokens());
  const double count = std::exp2((moment - now) / half_life_tokens) + tokens;
  moment = now + half_life_tokens * std::log2(count);
  slot.asked = ++requests_;
}

void LfuPolicy::inserted(SlotIndex slot, ExpertKey key, std::uint32_t tokens) noexcept {
  Slot& entry = slots_[static_cast<std::size_t>(slot)];
  entry.expert = key.layer * experts_ + key.expert;
  note(entry, tokens);
}

void LfuPolicy::touched(SlotIndex slot, std::uint32_t tokens) noexcept {
  leave(slot);
  note(slots_[static_cast<std::size_t>(slot)], tokens);
}

void LfuPolicy::idle(SlotIndex slot) noexcept {
  const Slot& entry = slots_[static_cast<std::size_t>(slot)];
  idle_[entry.group].push(places_, static_cast<std::uint32_t>(slot),
                          {moments_[entry.expert], entry.asked});
}

void LfuPolicy::removed(SlotIndex slot) noexcept { leave(slot); }

void LfuPolicy::leave(SlotIndex slot) noexcept {
  const auto id = static_cast<std::uint32_t>(slot);
  if (places_[id] >= 0) idle_[slots_[id].group].remove(places_, id);
}

SlotIndex LfuPolicy::victim(std::uint32_t group, LayerIndex /*layer*/) noexcept {
  return idle_[group].empty() ? no_slot : static_cast<SlotIndex>(idle_[group].top().id);
}

}  // namespace millrace
