#include "prefetch/expert_cache.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace millrace {

std::uint32_t spare_slots(const SlotGroup& group, std::uint32_t top_k,
                          std::uint32_t wanted) noexcept {
  if (group.slots >= group.experts || group.slots < 2 * top_k) return 0;
  return std::min(wanted, group.slots - 2 * top_k);
}

SlotPlan without_spares(SlotPlan plan, std::uint32_t top_k) {
  for (SlotGroup& group : plan.groups) {
    const std::uint32_t spares = spare_slots(group, top_k, spare_slots_wanted(top_k));
    group.slots -= spares;
    plan.slots -= spares;
  }
  return plan;
}

namespace {

// Of each group, the layers that have experts in it.
std::vector<std::vector<LayerIndex>> members_of(const SlotLayout& layout, const SlotPlan& plan) {
  std::vector<std::vector<LayerIndex>> members(plan.groups.size());
  for (LayerIndex layer = 0; layer < layout.layers(); ++layer) {
    for (ExpertIndex expert = 0; expert < layout.experts(layer); ++expert) {
      auto& in = members[plan.group_of_class[layout.at({layer, expert}).slot_class]];
      if (in.empty() || in.back() != layer) in.push_back(layer);
    }
  }
  return members;
}

}  // namespace

ExpertCache::ExpertCache(const SlotLayout& layout, const SlotPlan& plan, std::uint32_t top_k,
                         std::unique_ptr<EvictionPolicy> policy, std::uint32_t spares)
    : layout_(layout),
      group_of_class_(plan.group_of_class),
      policy_(std::move(policy)),
      slot_of_(layout.experts(), no_slot),
      top_k_(top_k),
      sizes_(plan.groups.size()),
      free_(plan.groups.size(), no_slot),
      spares_(plan.groups.size()) {
  MILLRACE_CHECK(policy_ != nullptr && group_of_class_.size() == layout.classes().size());
  PolicyShape shape{.layers = layout.layers(), .experts = 0, .group_of_slot = {}, .floors = {}};
  for (LayerIndex layer = 0; layer < layout.layers(); ++layer)
    shape.experts = std::max(shape.experts, layout.experts(layer));
  auto members = members_of(layout, plan);
  for (std::uint32_t group = 0; group < plan.groups.size(); ++group) {
    const SlotGroup& of = plan.groups[group];
    MILLRACE_CHECK(of.slots > 0);
    shape.group_of_slot.insert(shape.group_of_slot.end(), of.slots, group);
    spares_[group].assign(spare_slots(of, top_k, spares), no_slot);
    const std::uint64_t least = std::min<std::uint64_t>(top_k, of.experts);
    sizes_[group] = {of.slots, static_cast<std::uint32_t>(least + spares_[group].size()),
                     std::move(members[group])};
    shape.floors.push_back(floors(group));
  }
  slots_.resize(shape.group_of_slot.size());
  for (std::size_t i = slots_.size(); i-- > 0;) {  // so that the lowest is given out first
    slots_[i].group = shape.group_of_slot[i];
    set_free(static_cast<SlotIndex>(i));
  }
  policy_->prepare(shape);
  for (std::uint32_t group = 0; group < plan.groups.size(); ++group) repay(group);
}

// By layer; 0 for those that have no experts in the group.
std::vector<std::uint32_t> ExpertCache::floors(std::uint32_t group) const {
  const Size& size = sizes_[group];
  const auto values = layer_floors(size.slots - static_cast<std::uint32_t>(spares_[group].size()),
                                   static_cast<std::uint32_t>(size.members.size()), top_k_);
  std::vector<std::uint32_t> by_layer(layout_.layers(), 0);
  for (std::size_t i = 0; i < values.size(); ++i) by_layer[size.members[i]] = values[i];
  return by_layer;
}

void ExpertCache::resize(std::uint32_t group, std::uint32_t slots) {
  sizes_[group].slots = slots;
  policy_->resized(group, slots, floors(group));
}

void ExpertCache::retire(SlotIndex first, std::uint32_t count) {
  const std::uint32_t in = group(first);
  MILLRACE_CHECK(slots_least(in) + count <= slots(in));
  const SlotIndex end = first + static_cast<SlotIndex>(count);
  for (SlotIndex slot = first; slot < end; ++slot) {
    MILLRACE_CHECK(group(slot) == in && !at(slot).leaving);
    at(slot).leaving = true;
  }
  drop_leaving_free(in);
  resize(in, slots(in) - count);
  for (SlotIndex slot = first; slot < end; ++slot) vacate(slot);
  repay(in);
}

void ExpertCache::restore(SlotIndex first, std::uint32_t count) {
  const std::uint32_t in = group(first);
  for (SlotIndex slot = first + static_cast<SlotIndex>(count); slot-- > first;) {
    MILLRACE_CHECK(retired(slot));
    at(slot).leaving = false;
    set_free(slot);
  }
  resize(in, slots(in) + count);
  repay(in);
}

void ExpertCache::drop_leaving_free(std::uint32_t in) noexcept {
  for (SlotIndex* link = &free_[in]; *link != no_slot;) {
    if (at(*link).leaving) *link = at(*link).next_free;
    else link = &at(*link).next_free;
  }
}

// A slot that is leaving and in no free list: it is retired unless something holds it.
void ExpertCache::vacate(SlotIndex slot) noexcept {
  Slot& entry = at(slot);
  if (entry.claims > 0 || entry.phase == Phase::loading || entry.phase == Phase::failing) return;
  if (entry.phase == Phase::ready) {
    slot_of_[layout_.index(entry.key)] = no_slot;
    if (!entry.guess) {
      policy_->removed(slot);
      ++counters_.evictions;
    }
  }
  entry.guess = false;
  entry.phase = Phase::retired;
  auto& spares = spares_[entry.group];
  const auto spare = std::find(spares.begin(), spares.end(), slot);
  if (spare != spares.end()) *spare = no_slot;
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
  if (at(slot).guess) promote(slot, tokens);
  else claim(slot, tokens);
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
    slot = take_victim(in, key.layer);
    if (slot == no_slot) return no_slot;
  }
  at(slot).key = key;
  at(slot).phase = Phase::loading;
  at(slot).claims = 1;
  entry = slot;
  ++counters_.loads;
  policy_->inserted(slot, key, tokens);
  return slot;
}

// The policy's victim, absent from now on; no_slot if there is none.
SlotIndex ExpertCache::take_victim(std::uint32_t in, LayerIndex layer) noexcept {
  const SlotIndex slot = policy_->victim(in, layer);
  if (slot == no_slot) return no_slot;
  MILLRACE_CHECK(at(slot).phase == Phase::ready && at(slot).claims == 0);
  slot_of_[layout_.index(at(slot).key)] = no_slot;
  policy_->removed(slot);
  ++counters_.evictions;
  return slot;
}

SlotIndex ExpertCache::guess(ExpertKey key) noexcept {
  MILLRACE_CHECK(find(key) == no_slot);
  SlotIndex best = no_slot;
  for (const SlotIndex slot : spares_[group(key)]) {
    if (slot == no_slot || at(slot).phase == Phase::loading || at(slot).phase == Phase::failing)
      continue;
    const bool empty = at(slot).phase == Phase::free;
    if (best == no_slot || empty || at(slot).guessed < at(best).guessed) best = slot;
    if (empty) break;
  }
  if (best == no_slot) return no_slot;
  if (at(best).phase == Phase::ready) set_empty(best);
  at(best).key = key;
  at(best).phase = Phase::loading;
  at(best).guess = true;
  at(best).guessed = ++counters_.guesses;
  slot_of_[layout_.index(key)] = best;
  return best;
}

void ExpertCache::withdraw(SlotIndex slot) noexcept {
  MILLRACE_CHECK(at(slot).guess && at(slot).phase == Phase::loading);
  set_empty(slot);
  if (!at(slot).leaving) return;
  vacate(slot);
  repay(at(slot).group);
}

// A guess becomes an expert that the policy knows. The spares are owed a slot: it is taken when one
// is let go of, so that the rest of this call loses nothing to it.
void ExpertCache::promote(SlotIndex slot, std::uint32_t tokens) noexcept {
  Slot& entry = at(slot);
  ++counters_.guesses_used;
  entry.guess = false;
  entry.claims = 1;
  policy_->inserted(slot, entry.key, tokens);
  auto& spares = spares_[entry.group];
  *std::find(spares.begin(), spares.end(), slot) = no_slot;
}

void ExpertCache::repay(std::uint32_t in) noexcept {
  for (SlotIndex& spare : spares_[in]) {
    if (spare != no_slot) continue;
    if (free_[in] != no_slot) {
      spare = free_[in];
      free_[in] = at(spare).next_free;
    } else {
      spare = take_victim(in, layer_);
      if (spare == no_slot) return;
      at(spare).phase = Phase::free;
    }
  }
}

// A slot became free or idle. False if it went to the spares, which were owed one.
bool ExpertCache::available(SlotIndex slot) noexcept {
  const std::uint32_t in = at(slot).group;
  auto& spares = spares_[in];
  if (std::find(spares.begin(), spares.end(), no_slot) == spares.end()) return true;
  repay(in);
  return free_[in] != no_slot || policy_->victim(in, at(slot).key.layer) != no_slot;
}

// Of a guess: absent, the slot stays a spare.
void ExpertCache::set_empty(SlotIndex slot) noexcept {
  slot_of_[layout_.index(at(slot).key)] = no_slot;
  at(slot).phase = Phase::free;
  at(slot).guess = false;
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
  if (!at(slot).guess) policy_->removed(slot);
}

bool ExpertCache::finish(SlotIndex slot) noexcept {
  Slot& entry = at(slot);
  MILLRACE_CHECK(entry.phase == Phase::loading || entry.phase == Phase::failing);
  entry.phase = entry.phase == Phase::loading ? Phase::ready : Phase::failed;
  if (entry.guess) {
    if (entry.phase == Phase::failed) {
      entry.phase = Phase::free;
      entry.guess = false;
    }
    if (entry.leaving) {
      vacate(slot);
      repay(entry.group);
    }
    return false;  // a spare serves no request
  }
  if (entry.claims > 0) return false;
  if (entry.leaving) {
    vacate(slot);
    return false;
  }
  if (entry.phase == Phase::ready) policy_->idle(slot);
  else set_free(slot);
  return available(slot);
}

bool ExpertCache::release(SlotIndex slot) noexcept {
  Slot& entry = at(slot);
  MILLRACE_CHECK(entry.claims > 0);
  if (--entry.claims > 0) return false;
  if (entry.leaving) {
    vacate(slot);
    return false;
  }
  if (entry.phase == Phase::ready) policy_->idle(slot);
  else if (entry.phase == Phase::failed) set_free(slot);
  else return false;  // still loading: finish() follows
  return available(slot);
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
