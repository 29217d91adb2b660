#include "prefetch/expert_cache.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace millrace {
namespace {

// Floors of each group over the layers that have experts in it; 0 for the others.
std::vector<std::vector<std::uint32_t>> floors_of(const SlotLayout& layout, const SlotPlan& plan,
                                                  std::uint32_t top_k) {
  std::vector<std::vector<LayerIndex>> members(plan.groups.size());
  for (LayerIndex layer = 0; layer < layout.layers(); ++layer) {
    for (ExpertIndex expert = 0; expert < layout.experts(layer); ++expert) {
      auto& in = members[plan.group_of_class[layout.at({layer, expert}).slot_class]];
      if (in.empty() || in.back() != layer) in.push_back(layer);
    }
  }
  std::vector<std::vector<std::uint32_t>> floors(plan.groups.size());
  for (std::size_t group = 0; group < plan.groups.size(); ++group) {
    floors[group].assign(layout.layers(), 0);
    const auto values = layer_floors(plan.groups[group].slots,
                                     static_cast<std::uint32_t>(members[group].size()), top_k);
    for (std::size_t i = 0; i < values.size(); ++i) floors[group][members[group][i]] = values[i];
  }
  return floors;
}

}  // namespace

ExpertCache::ExpertCache(const SlotLayout& layout, const SlotPlan& plan, std::uint32_t top_k,
                         std::unique_ptr<EvictionPolicy> policy)
    : layout_(layout),
      group_of_class_(plan.group_of_class),
      policy_(std::move(policy)),
      slot_of_(layout.experts(), no_slot),
      free_(plan.groups.size(), no_slot) {
  MILLRACE_CHECK(policy_ != nullptr && group_of_class_.size() == layout.classes().size());
  PolicyShape shape{.layers = layout.layers(), .experts = 0, .group_of_slot = {}, .floors = {}};
  for (LayerIndex layer = 0; layer < layout.layers(); ++layer)
    shape.experts = std::max(shape.experts, layout.experts(layer));
  for (std::uint32_t group = 0; group < plan.groups.size(); ++group) {
    MILLRACE_CHECK(plan.groups[group].slots > 0);
    shape.group_of_slot.insert(shape.group_of_slot.end(), plan.groups[group].slots, group);
  }
  slots_.resize(shape.group_of_slot.size());
  for (std::size_t i = slots_.size(); i-- > 0;) {  // so that the lowest is given out first
    slots_[i].group = shape.group_of_slot[i];
    slots_[i].next_free = free_[slots_[i].group];
    free_[slots_[i].group] = static_cast<SlotIndex>(i);
  }
  shape.floors = floors_of(layout, plan, top_k);
  policy_->prepare(shape);
}

ExpertCache::Asked ExpertCache::ask(ExpertKey key, std::uint32_t tokens) noexcept {
  const SlotIndex slot = find(key);
  if (slot == no_slot) {
    ++counters_.misses;
    return {};
  }
  const bool hit = at(slot).phase == Phase::ready;
  ++(hit ? counters_.hits : counters_.misses);
  if (!hit) ++counters_.joined;
  claim(slot, tokens);
  return {slot, hit};
}

SlotIndex ExpertCache::assign(ExpertKey key, std::uint32_t tokens) noexcept {
  SlotIndex& entry = slot_of_[layout_.index(key)];
  MILLRACE_CHECK(entry == no_slot);
  const std::uint32_t in = group(key);
  SlotIndex slot = free_[in];
  if (slot != no_slot) {
    free_[in] = at(slot).next_free;
  } else {
    slot = policy_->victim(in, key.layer);
    if (slot == no_slot) return no_slot;
    MILLRACE_CHECK(at(slot).phase == Phase::ready && at(slot).claims == 0);
    slot_of_[layout_.index(at(slot).key)] = no_slot;
    policy_->removed(slot);
    ++counters_.evictions;
  }
  at(slot).key = key;
  at(slot).phase = Phase::loading;
  at(slot).claims = 1;
  entry = slot;
  ++counters_.loads;
  policy_->inserted(slot, key, tokens);
  return slot;
}

SlotIndex ExpertCache::join(ExpertKey key, std::uint32_t tokens) noexcept {
  const SlotIndex slot = find(key);
  MILLRACE_CHECK(slot != no_slot && at(slot).phase == Phase::loading);
  ++counters_.joined;
  claim(slot, tokens);
  return slot;
}

void ExpertCache::fail(SlotIndex slot) noexcept {
  MILLRACE_CHECK(at(slot).phase == Phase::loading);
  at(slot).phase = Phase::failing;
  slot_of_[layout_.index(at(slot).key)] = no_slot;
  policy_->removed(slot);
}

bool ExpertCache::finish(SlotIndex slot) noexcept {
  Slot& entry = at(slot);
  MILLRACE_CHECK(entry.phase == Phase::loading || entry.phase == Phase::failing);
  entry.phase = entry.phase == Phase::loading ? Phase::ready : Phase::failed;
  if (entry.claims > 0) return false;
  if (entry.phase == Phase::ready) policy_->idle(slot);
  else set_free(slot);
  return true;
}

bool ExpertCache::release(SlotIndex slot) noexcept {
  Slot& entry = at(slot);
  MILLRACE_CHECK(entry.claims > 0);
  if (--entry.claims > 0) return false;
  if (entry.phase == Phase::ready) policy_->idle(slot);
  else if (entry.phase == Phase::failed) set_free(slot);
  else return false;  // still loading: finish() follows
  return true;
}

ExpertCache::State ExpertCache::state(ExpertKey key) const noexcept {
  const SlotIndex slot = find(key);
  if (slot == no_slot) return State::absent;
  if (at(slot).phase == Phase::loading) return State::loading;
  return at(slot).claims > 0 ? State::in_use : State::ready;
}

void ExpertCache::set_free(SlotIndex slot) noexcept {
  at(slot).phase = Phase::free;
  at(slot).next_free = free_[at(slot).group];
  free_[at(slot).group] = slot;
}

void ExpertCache::claim(SlotIndex slot, std::uint32_t tokens) noexcept {
  ++at(slot).claims;
  policy_->touched(slot, tokens);
}

}  // namespace millrace
