// Software prefetch for the weight products. A tile reads several rows side by side, which hides
// the order of the bytes from the hardware; the prefetches run through memory in order, one tile
// and some more ahead of the work.
#pragma once

#include <cstddef>

namespace millrace {
namespace {

inline constexpr std::size_t prefetch_distance = 4096;    // bytes past the end of the tile at work
inline constexpr std::size_t stream_distance = 8 * 1024;  // where rows go one after the other

// `at` may lie past the weights: a prefetch never faults.
template <class Isa, std::size_t bytes>
[[gnu::always_inline]] inline const std::byte* prefetch_lines(const std::byte* at) {
  for (std::size_t line = 0; line < bytes; line += 64) Isa::prefetch(at + line);
  return at + bytes;
}

}  // namespace
}  // namespace millrace
