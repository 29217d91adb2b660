#include "prefetch/slot_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/base/counted.h"
#include "runtime/base/limits.h"
#include "runtime/base/units.h"

namespace millrace {
namespace {

std::uint64_t least_slots(const SlotGroup& group, std::uint32_t top_k) {
  return std::min<std::uint64_t>(top_k, group.experts);
}

std::uint64_t least_bytes(const std::vector<SlotGroup>& groups, std::uint32_t top_k) {
  std::uint64_t sum = 0;
  for (const SlotGroup& group : groups) sum += least_slots(group, top_k) * group.slot_bytes;
  return sum;
}

// Merges the pair of neighbours whose smaller experts waste the fewest bytes in larger slots.
void merge_once(SlotPlan& plan) {
  std::size_t best = 0;
  std::uint64_t best_waste = std::numeric_limits<std::uint64_t>::max();
  for (std::size_t i = 0; i + 1 < plan.groups.size(); ++i) {
    const std::uint64_t waste =
        (plan.groups[i + 1].slot_bytes - plan.groups[i].slot_bytes) * plan.groups[i].experts;
    if (waste < best_waste) {
      best = i;
      best_waste = waste;
    }
  }
  plan.groups[best + 1].experts += plan.groups[best].experts;
  plan.groups.erase(plan.groups.begin() + static_cast<std::ptrdiff_t>(best));
  for (std::uint32_t& group : plan.group_of_class)
    if (group > best) --group;
}

// Slots when each group holds the share `part / parts` of its experts, within its bounds.
constexpr std::uint64_t parts = std::uint64_t{1} << 24;

std::uint64_t slots_at(const SlotGroup& group, std::uint64_t part, std::uint32_t top_k) {
  return std::clamp(group.experts * part / parts, least_slots(group, top_k), group.experts);
}

std::uint64_t bytes_at(const std::vector<SlotGroup>& groups, std::uint64_t part,
                       std::uint32_t top_k) {
  std::uint64_t sum = 0;
  for (const SlotGroup& group : groups) sum += slots_at(group, part, top_k) * group.slot_bytes;
  return sum;
}

// The largest common share that fits, then single slots for the groups that are worst off.
void divide(std::vector<SlotGroup>& groups, std::uint64_t budget, std::uint32_t top_k) {
  std::uint64_t low = 0;  // fits
  std::uint64_t high = parts;
  while (low < high) {
    const std::uint64_t middle = low + (high - low + 1) / 2;
    if (bytes_at(groups, middle, top_k) <= budget) low = middle;
    else high = middle - 1;
  }
  std::uint64_t left = budget - bytes_at(groups, low, top_k);
  for (SlotGroup& group : groups)
    group.slots = static_cast<std::uint32_t>(slots_at(group, low, top_k));
  for (;;) {
    SlotGroup* poorest = nullptr;
    for (SlotGroup& group : groups) {
      if (group.slots == group.experts || group.slot_bytes > left) continue;
      if (poorest == nullptr || group.slots * poorest->experts < poorest->slots * group.experts)
        poorest = &group;
    }
    if (poorest == nullptr) return;
    ++poorest->slots;
    left -= poorest->slot_bytes;
  }
}

}  // namespace

std::uint64_t pool_segment_bytes(std::uint64_t slots_bytes) noexcept {
  constexpr std::uint64_t steps = 16, least = 64 * MiB, huge_page = 2 * MiB;
  return std::clamp(round_up(slots_bytes / steps, huge_page), least, limits::segment_bytes_max);
}

Result<SlotPlan> plan_slots(const SlotLayout& layout, std::uint64_t budget_bytes,
                            std::uint32_t top_k, std::uint64_t segment_bytes) {
  MILLRACE_CHECK(top_k > 0);
  SlotPlan plan;
  for (const SlotClass& c : layout.classes()) {
    plan.group_of_class.push_back(static_cast<std::uint32_t>(plan.groups.size()));
    plan.groups.push_back({.slot_bytes = c.slot_bytes, .experts = c.experts});
    plan.largest_bytes += c.slot_bytes * c.experts;
  }
  if (plan.groups.empty()) {
    plan.complete = true;
    return plan;
  }
  const std::uint64_t least = std::min<std::uint64_t>(top_k, layout.experts());
  const std::uint64_t largest_slot = plan.groups.back().slot_bytes;
  plan.smallest_bytes = std::min(least * largest_slot, least_bytes(plan.groups, top_k));
  while (plan.groups.size() > 1 && least_bytes(plan.groups, top_k) > budget_bytes) merge_once(plan);
  if (least_bytes(plan.groups, top_k) > budget_bytes)
    return Error{
        ErrorCode::memory,
        fmt::format("expert cache of {}: a token needs {} of {} at a time; the smallest that "
                    "works is --cache {} ({})",
                    format_bytes(budget_bytes), counted(least, "expert"),
                    format_bytes(largest_slot), plan.smallest_bytes,
                    format_bytes(plan.smallest_bytes))};
  divide(plan.groups, budget_bytes, top_k);
  for (SlotGroup& group : plan.groups) {
    group.segment_bytes =
        segment_bytes != 0 ? segment_bytes : pool_segment_bytes(group.slots * group.slot_bytes);
    plan.slots += group.slots;
    plan.bytes += group.slots * group.slot_bytes;
    plan.mapped_bytes +=
        PinnedMemory::mapped_bytes(group.slots, group.slot_bytes, group.segment_bytes);
  }
  plan.complete = plan.slots == layout.experts();
  return plan;
}

Result<std::vector<PinnedBlock>> allocate_slots(PinnedMemory& memory, const SlotPlan& plan) {
  std::vector<PinnedBlock> all;
  for (const SlotGroup& group : plan.groups) {
    MILLRACE_ASSIGN(const std::vector<PinnedBlock> blocks,
                    memory.allocate(group.slots, group.slot_bytes, group.segment_bytes));
    all.insert(all.end(), blocks.begin(), blocks.end());
  }
  return all;
}

std::vector<std::uint32_t> layer_floors(std::uint32_t slots, std::uint32_t layers,
                                        std::uint32_t top_k) {
  std::vector<std::uint32_t> floors(layers, 0);
  if (layers < 2 || slots <= top_k) return floors;
  const std::uint32_t shared = slots - top_k;
  const std::uint32_t each = shared / (layers - 1);
  const std::uint32_t rest = shared % (layers - 1);
  for (std::uint32_t i = 0; i < layers; ++i) floors[i] = std::min(top_k, each + (i < rest ? 1 : 0));
  return floors;
}

}  // namespace millrace
