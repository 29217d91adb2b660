// EvictionPolicy: which slot gives way. It sees what the cache does as five events and names a
// victim when asked; it holds no slots, claims or bytes itself. Owned by one ExpertCache, called
// under its lock (one thread at a time). Allocates in prepare() only.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

using SlotIndex = std::int32_t;
inline constexpr SlotIndex no_slot = -1;

// What a policy is told about its cache.
struct PolicyShape {
  std::uint32_t layers = 0;
  std::vector<std::uint32_t> group_of_slot;  // slots of a group are interchangeable
  // [group][layer]: as long as a layer has no more than so many experts in the group, requests of
  // other layers may not evict them.
  std::vector<std::vector<std::uint32_t>> floors;
};

// A slot is busy from inserted() or touched() until idle(); only idle slots are victims.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual const char* name() const noexcept = 0;
  virtual void prepare(const PolicyShape& shape) = 0;

  virtual void inserted(SlotIndex slot, ExpertKey key) noexcept = 0;  // the slot holds `key` now
  virtual void touched(SlotIndex slot) noexcept = 0;                  // asked for again
  virtual void idle(SlotIndex slot) noexcept = 0;     // ready, and the last claim was dropped
  virtual void removed(SlotIndex slot) noexcept = 0;  // evicted, or its load failed
  // The idle slot of `group` that gives way to an expert of `layer`, within the floors; no_slot if
  // there is none. Changes nothing: removed() follows if it is taken.
  virtual SlotIndex victim(std::uint32_t group, LayerIndex layer) noexcept = 0;
};

// By the name that --policy takes ("lru"); `usage` error with the known names otherwise.
Result<std::unique_ptr<EvictionPolicy>> make_eviction_policy(std::string_view name);

}  // namespace millrace
