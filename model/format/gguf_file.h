// One GGUF file on its own: header, metadata and tensor table, without regard to split models.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/format/checkpoint.h"
#include "model/format/header_reader.h"
#include "model/tensor.h"
#include "runtime/base/result.h"
#include "runtime/base/units.h"

namespace millrace {

inline constexpr std::uint32_t gguf_alignment_default = 32;
inline constexpr std::uint64_t gguf_alignment_max = 1 * MiB;
inline constexpr std::uint64_t gguf_key_bytes_max = 65535;

struct GgufFile {
  std::vector<std::string> keys;  // file order
  std::unordered_map<std::string, MetaValue> meta;
  std::vector<TensorInfo> tensors;   // file order; offsets absolute, TensorInfo::file 0
  std::uint64_t metadata_bytes = 0;  // read from the source
};

// Reads and checks everything before the weights. Errors as open_gguf().
Result<GgufFile> read_gguf_file(const ByteSource& source);

}  // namespace millrace
