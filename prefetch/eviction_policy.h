// EvictionPolicy: which slot gives way. It sees what the cache does as six events and names a
// victim when asked; it holds no slots, claims or bytes itself. Owned by one ExpertCache, called
// under its lock (one thread at a time). Allocates in prepare() only. What it answers depends on
// the order of calls and requests, not on when they were released: replay counts what a run did.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
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
  std::uint32_t experts = 0;                 // of the layer that has most
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

  // A call of `layer` begins, for `tokens` tokens (1 in decode, a prompt part in prefill): what
  // follows is asked for by it.
  virtual void layer_asked(LayerIndex layer, std::uint32_t tokens) noexcept = 0;
  // The slot holds `key` now; its expert is asked for again. `tokens`: how many of the call's chose
  // it.
  virtual void inserted(SlotIndex slot, ExpertKey key, std::uint32_t tokens) noexcept = 0;
  virtual void touched(SlotIndex slot, std::uint32_t tokens) noexcept = 0;
  virtual void idle(SlotIndex slot) noexcept = 0;     // ready, and the last claim was dropped
  virtual void removed(SlotIndex slot) noexcept = 0;  // evicted, or its load failed
  // The idle slot of `group` that gives way to an expert of `layer`; no_slot if there is none.
  // removed() follows if it is taken.
  virtual SlotIndex victim(std::uint32_t group, LayerIndex layer) noexcept = 0;

  // The group has `slots` slots from now on, no more than at first, and these floors, by layer.
  virtual void resized(std::uint32_t /*group*/, std::uint32_t /*slots*/,
                       std::span<const std::uint32_t> /*floors*/) noexcept {}
};

inline constexpr const char* eviction_policy_default = "forecast";
// Names that --policy takes.
std::span<const char* const> eviction_policy_names() noexcept;
// By such a name; `usage` error with the known names otherwise.
Result<std::unique_ptr<EvictionPolicy>> make_eviction_policy(std::string_view name);

}  // namespace millrace
