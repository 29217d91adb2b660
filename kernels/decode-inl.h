// One row decoded to float32, over an ISA policy and a format.
#pragma once

#include <cstddef>

namespace millrace {
namespace {

template <class Isa, class Format>
void decode_row(const std::byte* row, std::size_t columns, float* out) {
  constexpr std::size_t step = 16 * Format::step_vectors;
  std::size_t i = 0;
  for (; i + step <= columns; i += step, row += Format::step_bytes) {
    typename Isa::F32x16 values[Format::step_vectors];
    Format::template decode<Isa>(row, values);
    for (std::size_t v = 0; v < Format::step_vectors; ++v) Isa::store(out + i + 16 * v, values[v]);
  }
  if constexpr (Format::step_vectors == 1) {  // rows of whole blocks have no rest
    if (i < columns)
      Isa::store_first(out + i, Format::template decode_first<Isa>(row, columns - i), columns - i);
  }
}

}  // namespace
}  // namespace millrace
