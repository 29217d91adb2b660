// Where the four blocks lie whose codes a format unpacks together: one behind the other in a row,
// or in four rows. Either way lane j of what is loaded belongs to block j.
#pragma once

#include <cstddef>

namespace millrace {
namespace {

template <class Isa, std::size_t block_bytes>
struct BlocksOfRow {
  const std::byte* first;
  [[gnu::always_inline]] typename Isa::B64 load(std::size_t offset) const {
    return Isa::template load_quad<block_bytes>(first + offset);
  }
};

template <class Isa>
struct BlocksOfRows {
  const std::byte* const (&at)[4];
  [[gnu::always_inline]] typename Isa::B64 load(std::size_t offset) const {
    return Isa::load_rows(at, offset);
  }
};

}  // namespace
}  // namespace millrace
