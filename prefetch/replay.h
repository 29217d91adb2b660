// Replay: a recorded routing driven through the ExpertCache and policies of a run, without bytes.
// Counts what a run would have counted: exactly, as long as each call finds its slots at once (a
// prompt part that runs in waves gives slots back in the order of its computations). One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/expert_extents.h"
#include "prefetch/expert_cache.h"
#include "prefetch/routing_record.h"

namespace millrace {

// Of one call.
struct CallCounts {
  std::uint32_t hits = 0;
  std::uint32_t misses = 0;
  std::uint32_t compulsory = 0;  // of the misses: never asked for before
  std::uint64_t miss_bytes = 0;  // as read, rounded to blocks
};

// Drives all calls through a new cache, from empty. `layout` has the experts that the calls ask
// for (checked); `plan` has slots. Returns one entry per call.
std::vector<CallCounts> replay_calls(std::span<const RoutingCall> calls, const SlotLayout& layout,
                                     const SlotPlan& plan, std::uint32_t top_k,
                                     std::unique_ptr<EvictionPolicy> policy);

// The calls with their tokens (prompt parts) in random order: popularity stays, the likeness of
// neighbours goes. What a policy loses by it is what it had from recency.
std::vector<RoutingCall> shuffled_calls(std::span<const RoutingCall> calls, std::uint32_t seed);

// Extents of a model of which only the figures are known: `experts` of `expert_bytes` each in every
// layer that is routed.
ExpertExtents extents_of_shape(const std::vector<bool>& routed_layers, std::uint32_t experts,
                               std::uint64_t expert_bytes);

}  // namespace millrace
