#include "prefetch/policies/forecast.h"

#include <algorithm>
#include <cmath>

namespace millrace {

void ForecastPolicy::prepare(const PolicyShape& shape) {
  layers_ = shape.layers;
  experts_ = shape.experts;
  requests_ = 0;
  clock_ = WalkClock();
  decay_.resize(ages_max);
  for (std::size_t span = 0; span < ForecastRule::spans; ++span) {
    // A count that grows by one with every token tends to 1 / (2^(1 / half-life) - 1) at age one.
    rate_[span] = rule_.weight[span] * (std::exp2(1 / rule_.half_life_tokens[span]) - 1);
    for (std::size_t age = 0; age < ages_max; ++age)
      decay_[age][span] =
          static_cast<float>(std::exp2(-static_cast<double>(age) / rule_.half_life_tokens[span]));
  }
  known_.assign(std::size_t{layers_} * experts_, Expert{});
  walk_of_layer_.assign(layers_, 0);
  slots_.assign(shape.group_of_slot.size(), Slot{});
  places_.assign(slots_.size(), -1);
  const std::size_t groups = shape.floors.size();
  std::vector<std::size_t> sizes(groups, 0);
  for (std::size_t index = 0; index < slots_.size(); ++index)
    ++sizes[slots_[index].group = shape.group_of_slot[index]];
  idle_.assign(groups * layers_, IndexedHeap());
  layer_places_.assign(groups, IndexedHeap::Places(layers_, -1));
  layer_heaps_.assign(groups, IndexedHeap());
  for (std::uint32_t group = 0; group < groups; ++group) {
    layer_heaps_[group].reserve(layers_);
    for (LayerIndex layer = 0; layer < layers_; ++layer)
      idle_of(group, layer).reserve(std::min<std::size_t>(sizes[group], experts_));
  }
}

void ForecastPolicy::layer_asked(LayerIndex layer, std::uint32_t tokens) noexcept {
  clock_.layer_asked(layer, tokens);
  walk_of_layer_[layer] = clock_.walks();
  for (std::uint32_t group = 0; group < layer_heaps_.size(); ++group) {
    idle_of(group, layer).rekey(places_, [this](std::uint32_t id) { return chance(slots_[id]); });
    refresh(group, layer);
  }
}

// A batch counts as if its tokens had come one after the other and had been much alike.
void ForecastPolicy::note(Slot& of, std::uint32_t tokens) noexcept {
  Expert& at = expert(of.key);
  const std::uint64_t now = clock_.tokens();
  const Counts& old = decay(now - at.last);
  const std::uint32_t batch = std::max(clock_.batch(), 1u);
  const float share = static_cast<float>(tokens) / static_cast<float>(batch);
  for (std::size_t span = 0; span < ForecastRule::spans; ++span) {
    const float one = decay_[1][span];
    const float sum = batch == 1 ? 1.0F : (1 - decay(batch)[span]) / (1 - one);
    at.counts[span] = at.counts[span] * old[span] + share * sum;
  }
  at.last = now;
  of.asked = ++requests_;
}

// At the layer's next turn, one token after its last.
IndexedHeap::Key ForecastPolicy::chance(const Slot& of) noexcept {
  const Expert& at = expert(of.key);
  const Counts& left = decay(clock_.tokens() + 1 - at.last);
  double sum = 0;
  for (std::size_t span = 0; span < ForecastRule::spans; ++span)
    sum += rate_[span] * static_cast<double>(at.counts[span] * left[span]);
  return {sum, of.asked};
}

void ForecastPolicy::inserted(SlotIndex index, ExpertKey key, std::uint32_t tokens) noexcept {
  slot(index).key = key;
  note(slot(index), tokens);
}

void ForecastPolicy::touched(SlotIndex index, std::uint32_t tokens) noexcept {
  leave(index);
  note(slot(index), tokens);
}

void ForecastPolicy::idle(SlotIndex index) noexcept {
  const Slot& of = slot(index);
  idle_of(of.group, of.key.layer).push(places_, static_cast<std::uint32_t>(index), chance(of));
  refresh(of.group, of.key.layer);
}

void ForecastPolicy::removed(SlotIndex index) noexcept { leave(index); }

void ForecastPolicy::leave(SlotIndex index) noexcept {
  const auto id = static_cast<std::uint32_t>(index);
  if (places_[id] < 0) return;
  const Slot& of = slot(index);
  idle_of(of.group, of.key.layer).remove(places_, id);
  refresh(of.group, of.key.layer);
}

// The layer's place among the others: chances halve with the distance of its next turn. That turn
// is fixed until it comes, so the distances from now need not be known.
void ForecastPolicy::refresh(std::uint32_t group, LayerIndex layer) noexcept {
  const IndexedHeap& in = idle_of(group, layer);
  IndexedHeap& heap = layer_heaps_[group];
  IndexedHeap::Places& places = layer_places_[group];
  if (in.empty()) {
    if (places[layer] >= 0) heap.remove(places, layer);
    return;
  }
  constexpr double chance_min = 1e-12;
  const IndexedHeap::Key least = in.top().key;
  const double turn = static_cast<double>(walk_of_layer_[layer]) +
                      static_cast<double>(layer) / static_cast<double>(layers_);
  const IndexedHeap::Key key{std::log2(std::max(least.first, chance_min)) - rule_.distance * turn,
                             least.second};
  if (places[layer] < 0) heap.push(places, layer, key);
  else heap.update(places, layer, key);
}

SlotIndex ForecastPolicy::victim(std::uint32_t group, LayerIndex /*layer*/) noexcept {
  const IndexedHeap& heap = layer_heaps_[group];
  if (heap.empty()) return no_slot;
  return static_cast<SlotIndex>(idle_of(group, heap.top().id).top().id);
}

}  // namespace millrace
