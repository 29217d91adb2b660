// The header of one safetensors file: names, types, shapes and places of its tensors, checked
// (README.md has the rules). Reads the header only, never weights. Calling thread only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace millrace {

// One tensor of a file. Row-major, the outermost dimension first.
struct SafeTensor {
  std::string name;
  std::string dtype;                 // as in the file: "BF16", "F8_E4M3", …
  std::vector<std::uint64_t> shape;  // empty: one element
  std::uint64_t offset_bytes = 0;    // absolute in the file
  std::uint64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafeTensor> tensors;  // in the header's order
  std::uint64_t header_bytes = 0;   // read
};

inline constexpr std::uint64_t safetensors_header_bytes_max =
    100'000'000;  // the format's own bound

// Bits of an element; 0 for a type that the format does not have.
std::uint32_t safetensors_dtype_bits(std::string_view dtype) noexcept;

// Errors: `io` (unreadable), `format` with file and tensor. A type that we do not know is accepted
// (with its size unchecked): it is refused where the tensor is needed.
Result<SafetensorsHeader> read_safetensors_header(const std::string& path);

}  // namespace millrace
