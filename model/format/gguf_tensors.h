// The tensor table of one GGUF file: shapes, types and extents, each checked before it is used.
#pragma once

#include <cstdint>
#include <vector>

#include "model/format/header_reader.h"
#include "model/tensor.h"
#include "runtime/base/result.h"

namespace millrace {

inline constexpr std::uint64_t gguf_tensor_name_bytes_max = 63;

// Reads `count` tensor infos; offset_bytes is still relative to the data part. Fails with `format`
// on a bad name, a name used twice, a shape that is empty or too large, a row that is no whole
// number of blocks; with `unsupported` on a type without a known layout.
Result<std::vector<TensorInfo>> read_gguf_tensors(HeaderReader& reader, std::uint64_t count);

// Makes the offsets absolute. Fails with `format` on an offset that is not a multiple of
// `alignment`, a tensor that ends after the file, and tensors that overlap; holes are logged.
Status place_gguf_tensors(HeaderReader& reader, std::uint64_t data_start, std::uint64_t alignment,
                          std::vector<TensorInfo>& tensors);

}  // namespace millrace
