#include "prefetch/policies/clairvoyant.h"

#include <limits>

namespace millrace {

void ClairvoyantPolicy::prepare(const PolicyShape& shape) {
  experts_ = shape.experts;
  call_ = 0;
  uses_.assign(std::size_t{shape.layers} * experts_, Uses{});
  std::uint32_t number = 0;
  for (const RoutingCall& call : calls_) {
    ++number;
    for (const ExpertIndex expert : call.experts)
      uses_[std::size_t{call.layer} * experts_ + expert].calls.push_back(number);
  }
  slots_.assign(shape.group_of_slot.size(), Slot{});
  places_.assign(slots_.size(), -1);
  idle_.assign(shape.floors.size(), IndexedHeap());
  for (std::size_t index = 0; index < slots_.size(); ++index)
    slots_[index].group = shape.group_of_slot[index];
  for (IndexedHeap& heap : idle_) heap.reserve(slots_.size());
}

void ClairvoyantPolicy::inserted(SlotIndex slot, ExpertKey key, std::uint32_t /*tokens*/) noexcept {
  slots_[static_cast<std::size_t>(slot)].expert = key.layer * experts_ + key.expert;
}

void ClairvoyantPolicy::touched(SlotIndex slot, std::uint32_t /*tokens*/) noexcept { leave(slot); }

void ClairvoyantPolicy::idle(SlotIndex slot) noexcept {
  const Slot& of = slots_[static_cast<std::size_t>(slot)];
  Uses& uses = uses_[of.expert];
  while (uses.next < uses.calls.size() && uses.calls[uses.next] <= call_) ++uses.next;
  const double next = uses.next < uses.calls.size() ? uses.calls[uses.next]
                                                    : std::numeric_limits<double>::infinity();
  idle_[of.group].push(places_, static_cast<std::uint32_t>(slot), {-next, of.expert});
}

void ClairvoyantPolicy::leave(SlotIndex slot) noexcept {
  const auto id = static_cast<std::uint32_t>(slot);
  if (places_[id] >= 0) idle_[slots_[id].group].remove(places_, id);
}

SlotIndex ClairvoyantPolicy::victim(std::uint32_t group, LayerIndex /*layer*/) noexcept {
  return idle_[group].empty() ? no_slot : static_cast<SlotIndex>(idle_[group].top().id);
}

}  // namespace millrace
