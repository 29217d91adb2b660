// Rounding of byte ranges to the blocks that O_DIRECT wants. The one place where that is done.
#pragma once

#include <cstdint>

#include "runtime/base/units.h"

namespace millrace {

// A range of a file, rounded outward to whole blocks.
struct BlockWindow {
  std::uint64_t offset_bytes = 0;  // a multiple of the block, at or before the range
  std::uint64_t bytes = 0;         // a multiple of the block; may end past the end of the file
  std::uint64_t needed_bytes = 0;  // from offset_bytes to the end of the range
  std::uint64_t skip_bytes = 0;    // where the range starts inside the window

  friend constexpr bool operator==(const BlockWindow&, const BlockWindow&) = default;
};

// The smallest window of whole blocks that holds [offset_bytes, offset_bytes + bytes).
constexpr BlockWindow block_window(std::uint64_t offset_bytes, std::uint64_t bytes,
                                   std::uint32_t block_bytes) noexcept {
  BlockWindow window;
  window.offset_bytes = round_down(offset_bytes, block_bytes);
  window.skip_bytes = offset_bytes - window.offset_bytes;
  window.needed_bytes = window.skip_bytes + bytes;
  window.bytes = round_up(window.needed_bytes, block_bytes);
  return window;
}

// Bytes of the largest window that a range of `bytes` can have, wherever it starts: what a slot
// must offer.
constexpr std::uint64_t block_window_bytes_max(std::uint64_t bytes,
                                               std::uint32_t block_bytes) noexcept {
  return bytes == 0 ? 0 : round_up(bytes + block_bytes - 1, block_bytes);
}

// Bytes of the next piece of a read of which `rest_bytes` are left: as many equal pieces as come
// nearest to `piece_bytes`, whole blocks, so that no crumb is left that costs a read of its own.
// Between two thirds and one and a half of `piece_bytes`, unless the read is smaller. Both are
// multiples of the block.
constexpr std::uint64_t even_piece_bytes(std::uint64_t rest_bytes, std::uint64_t piece_bytes,
                                         std::uint64_t block_bytes) noexcept {
  const std::uint64_t pieces = (rest_bytes + piece_bytes / 2) / piece_bytes;
  if (pieces < 2) return rest_bytes;
  return round_up((rest_bytes + pieces - 1) / pieces, block_bytes);
}

}  // namespace millrace
