// How many slots of which size a budget buys. Pure functions; the planner sums and prints the
// result before anything is allocated.
#pragma once

#include <cstdint>
#include <vector>

#include "io/pinned_memory.h"
#include "prefetch/slot_layout.h"
#include "runtime/base/result.h"

namespace millrace {

// Slots of one size, shared by one or more neighbouring classes of the layout.
struct SlotGroup {
  std::uint64_t slot_bytes = 0;
  std::uint64_t experts = 0;  // that may live here
  std::uint32_t slots = 0;
  std::uint64_t segment_bytes = 0;  // of memory that holds them: what the pool shrinks by, at most
};

struct SlotPlan {
  std::vector<SlotGroup> groups;              // ascending size
  std::vector<std::uint32_t> group_of_class;  // index into groups, by class of the layout
  std::uint64_t slots = 0;
  std::uint64_t bytes = 0;           // of all slots, never above the budget
  std::uint64_t mapped_bytes = 0;    // what PinnedMemory maps for them
  std::uint64_t smallest_bytes = 0;  // the smallest budget that works
  std::uint64_t largest_bytes = 0;   // a larger budget changes nothing: every expert has its slot
  bool complete = false;             // every expert has its slot
};

// Divides the budget over the classes in proportion to their share of the pool. Each group gets at
// least top_k slots (or one per expert, if it has fewer); classes are merged into larger slots when
// the budget does not give that to each. Below top_k slots of the largest class: a `memory` error
// that names the smallest --cache. A layout without experts gives an empty plan. `segment_bytes`: 0
// for pool_segment_bytes() of each group.
Result<SlotPlan> plan_slots(const SlotLayout& layout, std::uint64_t budget_bytes,
                            std::uint32_t top_k, std::uint64_t segment_bytes = 0);

// A sixteenth of the slots, so that the pool can shrink in small steps, but at least 64 MiB: each
// segment is rounded up to huge pages (2 MiB) and is a system call to register. At most what one
// buffer may have.
std::uint64_t pool_segment_bytes(std::uint64_t slots_bytes) noexcept;

// The plan's slots, group by group, from new segments of `memory`.
Result<std::vector<PinnedBlock>> allocate_slots(PinnedMemory& memory, const SlotPlan& plan);

// Slots per layer that requests of other layers may not take, for each layer that lives in a group
// of `slots` slots: as many as possible, at most top_k, such that any layer always finds top_k
// slots (or all) outside the floors of the others, to load its misses side by side. The first
// layers get what does not divide evenly.
std::vector<std::uint32_t> layer_floors(std::uint32_t slots, std::uint32_t layers,
                                        std::uint32_t top_k);

}  // namespace millrace
