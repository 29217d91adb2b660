// The slot whose expert is least likely to be asked for at its layer's next turn, and, of equals,
// the one whose turn is farthest off: layers come round in a circle.
//
// The chance is estimated from how often the tokens before chose the expert, as a sum of three
// frequencies that forget at different speeds (half-lives in tokens): what the last token chose,
// what the last few did, and what the text is about. Frequencies are kept for evicted experts too.
// While a layer is not asked its estimates stand still, so idle slots lie in one heap per
// (group, layer), which a call of the layer builds anew (O(its idle slots), some ns each), and a
// heap per group orders the layers by their least likely slot. An event and a victim cost
// O(log experts + log layers).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "prefetch/eviction_policy.h"
#include "prefetch/policies/indexed_heap.h"
#include "prefetch/policies/walk_clock.h"

namespace millrace {

// Defaults: fitted on the first halves of recorded routings (prefetch/README.md).
struct ForecastRule {
  static constexpr std::size_t spans = 3;
  std::array<double, spans> half_life_tokens = {0.6, 5, 14};
  std::array<double, spans> weight = {0.25, 0.25, 0.5};
  // A turn that is a whole walk later is worth so many halvings of the chance.
  double distance = 0.9;
};

class ForecastPolicy final : public EvictionPolicy {
 public:
  explicit ForecastPolicy(const ForecastRule& rule = {}) : rule_(rule) {}
  const char* name() const noexcept override { return "forecast"; }
  void prepare(const PolicyShape& shape) override;
  void layer_asked(LayerIndex layer, std::uint32_t tokens) noexcept override;
  void inserted(SlotIndex slot, ExpertKey key, std::uint32_t tokens) noexcept override;
  void touched(SlotIndex slot, std::uint32_t tokens) noexcept override;
  void idle(SlotIndex slot) noexcept override;
  void removed(SlotIndex slot) noexcept override;
  SlotIndex victim(std::uint32_t group, LayerIndex layer) noexcept override;

 private:
  static constexpr std::size_t ages_max = 512;  // tokens; older counts are as good as gone
  using Counts = std::array<float, ForecastRule::spans>;
  struct Expert {
    Counts counts{};         // decayed sums, as of `last`
    std::uint64_t last = 0;  // tokens when it was asked for
  };
  struct Slot {
    ExpertKey key;
    std::uint32_t group = 0;
    std::uint64_t asked = 0;  // when, as a count of requests
  };

  Slot& slot(SlotIndex index) noexcept { return slots_[static_cast<std::size_t>(index)]; }
  Expert& expert(ExpertKey key) noexcept {
    return known_[std::size_t{key.layer} * experts_ + key.expert];
  }
  IndexedHeap& idle_of(std::uint32_t group, LayerIndex layer) noexcept {
    return idle_[std::size_t{group} * layers_ + layer];
  }
  const Counts& decay(std::uint64_t age) const noexcept {
    return decay_[age < ages_max ? age : ages_max - 1];
  }
  void note(Slot& slot, std::uint32_t tokens) noexcept;
  IndexedHeap::Key chance(const Slot& slot) noexcept;
  void leave(SlotIndex index) noexcept;
  void refresh(std::uint32_t group, LayerIndex layer) noexcept;

  ForecastRule rule_;
  std::uint32_t layers_ = 0;
  std::uint32_t experts_ = 0;
  std::uint64_t requests_ = 0;
  WalkClock clock_;
  std::array<double, ForecastRule::spans> rate_{};  // chance that a decayed count of one stands for
  std::vector<Counts> decay_;                       // by age in tokens
  std::vector<Expert> known_;                       // [layer][expert]
  std::vector<std::uint64_t> walk_of_layer_;        // in which it was asked last
  std::vector<Slot> slots_;
  IndexedHeap::Places places_;                     // of slots
  std::vector<IndexedHeap> idle_;                  // [group][layer], by chance
  std::vector<IndexedHeap::Places> layer_places_;  // [group]
  std::vector<IndexedHeap> layer_heaps_;           // [group]: layers with idle slots
};

}  // namespace millrace
