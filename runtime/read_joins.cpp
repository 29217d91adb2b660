#include "runtime/read_joins.h"

#include <algorithm>
#include <utility>

namespace millrace {

SlotLayout joined_layout(const ExpertExtents& extents, std::span<const std::uint32_t> block_bytes,
                         const RangeOfRead& range) {
  SlotLayout apart(extents, block_bytes);
  const std::uint64_t bytes = apart.largest_read_bytes();
  if (bytes == 0) return apart;
  const DriveRange alone = range(bytes);
  const DriveRange both = range(2 * bytes);
  if (!alone.measured || both.middle < join_gain_min * alone.middle) return apart;
  return {extents, block_bytes, std::max(SlotLayout::joined_bytes_max, 2 * bytes)};
}

}  // namespace millrace
