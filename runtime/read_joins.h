// Whether what follows each other in the files is read at once: judged by the drives' profiles.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "prefetch/slot_layout.h"
#include "runtime/estimate/predict.h"

namespace millrace {

// What the drives give for reads of that many bytes at most.
using RangeOfRead = std::function<DriveRange(std::uint64_t read_bytes)>;

// By how much larger reads must be faster: the first half of a joined read is there later, and
// profiles are no more exact than this.
inline constexpr double join_gain_min = 1.05;

// The layout of a run. Neighbouring parts (gate and up of packed or fused experts) are one read if
// reads of twice the size come faster by the gain above, as drives show that were measured; with no
// profile only what SlotLayout joins in any case is joined.
SlotLayout joined_layout(const ExpertExtents& extents, std::span<const std::uint32_t> block_bytes,
                         const RangeOfRead& range);

}  // namespace millrace
