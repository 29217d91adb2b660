#include "prefetch/policies/lru.h"

#include "runtime/base/check.h"

namespace millrace {

void LruPolicy::prepare(const PolicyShape& shape) {
  layers_ = shape.layers;
  requests_ = 0;
  nodes_.assign(shape.group_of_slot.size(), Node{});
  for (std::size_t slot = 0; slot < nodes_.size(); ++slot)
    nodes_[slot].group = shape.group_of_slot[slot];
  lists_.assign(shape.floors.size() * layers_, LayerList{});
  heaps_.assign(shape.floors.size(), {});
  for (std::uint32_t group = 0; group < shape.floors.size(); ++group) {
    MILLRACE_CHECK(shape.floors[group].size() == layers_);
    heaps_[group].reserve(layers_);
    for (LayerIndex layer = 0; layer < layers_; ++layer)
      list(group, layer).floor = shape.floors[group][layer];
  }
}

void LruPolicy::inserted(SlotIndex slot, ExpertKey key, std::uint32_t /*tokens*/) noexcept {
  Node& entry = node(slot);
  entry.layer = key.layer;
  entry.asked = ++requests_;
  ++list(entry.group, entry.layer).residents;
  refresh(entry.group, entry.layer);
}

void LruPolicy::touched(SlotIndex slot, std::uint32_t /*tokens*/) noexcept {
  Node& entry = node(slot);
  if (entry.is_idle) {
    unlink(slot);
    refresh(entry.group, entry.layer);
  }
  entry.asked = ++requests_;
}

void LruPolicy::idle(SlotIndex slot) noexcept {
  MILLRACE_DCHECK(!node(slot).is_idle);
  link(slot);
  refresh(node(slot).group, node(slot).layer);
}

void LruPolicy::removed(SlotIndex slot) noexcept {
  const Node& entry = node(slot);
  if (entry.is_idle) unlink(slot);
  --list(entry.group, entry.layer).residents;
  refresh(entry.group, entry.layer);
}

SlotIndex LruPolicy::victim(std::uint32_t group, LayerIndex layer) noexcept {
  const SlotIndex own = list(group, layer).oldest;
  if (heaps_[group].empty()) return own;
  const SlotIndex oldest = list(group, heaps_[group].front()).oldest;
  return own == no_slot || node(oldest).asked < node(own).asked ? oldest : own;
}

void LruPolicy::resized(std::uint32_t group, std::uint32_t /*slots*/,
                        std::span<const std::uint32_t> floors) noexcept {
  for (LayerIndex layer = 0; layer < layers_; ++layer) {
    list(group, layer).floor = floors[layer];
    refresh(group, layer);
  }
}

// Into its place by recency. Only slots of the same layer that were asked for later and released
// earlier are passed: experts of the same few requests.
void LruPolicy::link(SlotIndex slot) noexcept {
  Node& entry = node(slot);
  LayerList& in = list(entry.group, entry.layer);
  SlotIndex newer = no_slot;
  SlotIndex older = in.newest;
  while (older != no_slot && node(older).asked > entry.asked) {
    newer = older;
    older = node(older).older;
  }
  entry.newer = newer;
  entry.older = older;
  entry.is_idle = true;
  (newer == no_slot ? in.newest : node(newer).older) = slot;
  (older == no_slot ? in.oldest : node(older).newer) = slot;
}

void LruPolicy::unlink(SlotIndex slot) noexcept {
  Node& entry = node(slot);
  LayerList& in = list(entry.group, entry.layer);
  (entry.newer == no_slot ? in.newest : node(entry.newer).older) = entry.older;
  (entry.older == no_slot ? in.oldest : node(entry.older).newer) = entry.newer;
  entry.is_idle = false;
}

// Brings the layer's place in the heap in line with its list and residents.
void LruPolicy::refresh(std::uint32_t group, LayerIndex layer) noexcept {
  LayerList& in = list(group, layer);
  std::vector<LayerIndex>& heap = heaps_[group];
  const bool gives = in.oldest != no_slot && in.residents > in.floor;
  if (gives) {
    if (in.heap_place < 0) {
      heap.push_back(layer);
      in.heap_place = static_cast<std::int32_t>(heap.size()) - 1;
    }
    sift(group, static_cast<std::size_t>(in.heap_place));
  } else if (in.heap_place >= 0) {
    const auto place = static_cast<std::size_t>(in.heap_place);
    const LayerIndex last = heap.back();
    heap.pop_back();
    in.heap_place = -1;
    if (last != layer) {
      put(group, place, last);
      sift(group, place);
    }
  }
}

// Moves the layer at `place` up or down to where its age belongs.
void LruPolicy::sift(std::uint32_t group, std::size_t place) noexcept {
  std::vector<LayerIndex>& heap = heaps_[group];
  const LayerIndex layer = heap[place];
  const std::uint64_t age = age_key(group, layer);
  while (place > 0 && age_key(group, heap[(place - 1) / 2]) > age) {
    put(group, place, heap[(place - 1) / 2]);
    place = (place - 1) / 2;
  }
  for (;;) {
    std::size_t child = 2 * place + 1;
    if (child >= heap.size()) break;
    if (child + 1 < heap.size() && age_key(group, heap[child + 1]) < age_key(group, heap[child]))
      ++child;
    if (age_key(group, heap[child]) >= age) break;
    put(group, place, heap[child]);
    place = child;
  }
  put(group, place, layer);
}

void LruPolicy::put(std::uint32_t group, std::size_t place, LayerIndex layer) noexcept {
  heaps_[group][place] = layer;
  list(group, layer).heap_place = static_cast<std::int32_t>(place);
}

}  // namespace millrace
