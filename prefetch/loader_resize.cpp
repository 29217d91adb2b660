// The loader's pool shrinks and grows: slots are given up and come back by segments.
#include "prefetch/loader.h"

namespace millrace {

bool Loader::retire(const PoolSegment& segment) {
  Chain chain;
  std::unique_lock lock(mutex_);
  if (cache_.slots(segment.group) < cache_.slots_least(segment.group) + segment.slots) return false;
  cache_.retire(segment.first, segment.slots);
  serve(segment.group, chain);  // lower floors may have made room
  submit(chain, lock);
  return true;
}

bool Loader::vacated(const PoolSegment& segment) noexcept {
  const std::lock_guard lock(mutex_);
  bool all = true;
  for (std::uint32_t i = 0; i < segment.slots; ++i) {
    const SlotIndex slot = segment.first + static_cast<SlotIndex>(i);
    if (!cache_.retired(slot) && load(slot).guess && !load(slot).failed && submissions_ == 0)
      withdraw_guess(slot);
    all = all && cache_.retired(slot);
  }
  return all;
}

void Loader::restore(const PoolSegment& segment) {
  Chain chain;
  std::unique_lock lock(mutex_);
  cache_.restore(segment.first, segment.slots);
  serve(segment.group, chain);
  submit(chain, lock);
}

}  // namespace millrace
