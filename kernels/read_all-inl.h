// The plain read loop that weight products are measured against.
#pragma once

#include <cstddef>
#include <cstdint>

namespace millrace {
namespace {

template <class Isa>
std::uint64_t read_all(const std::byte* data, std::size_t bytes) {
  return Isa::read_all(data, bytes);
}

}  // namespace
}  // namespace millrace
