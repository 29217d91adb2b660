// All tensors of a checkpoint folder: from model.safetensors, or from the shards that
// model.safetensors.index.json names. Plain data once read; calling thread only.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/format/safetensors/header.h"
#include "runtime/base/json.h"
#include "runtime/base/result.h"

namespace millrace {

struct ShardedTensor {
  SafeTensor tensor;
  std::uint32_t file = 0;  // index into SafetensorsShards::files
};

struct SafetensorsShards {
  std::vector<std::string> files;
  std::vector<ShardedTensor> tensors;  // by file, in the headers' order; names differ
  std::unordered_map<std::string, std::size_t> by_name;
  std::uint64_t read_bytes = 0;

  const ShardedTensor* find(const std::string& name) const {
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : &tensors[found->second];
  }
};

inline constexpr const char* safetensors_index_name = "model.safetensors.index.json";

// Errors: `io` (unreadable), `format`: no safetensors there, a malformed index, a shard that is
// missing, a tensor that is not in the shard which the index names for it; with file and tensor.
Result<SafetensorsShards> read_shards(const std::string& folder);

// A JSON file of the folder, at most `bytes_max` long; errors as above.
Result<Json> read_json_file(const std::string& path, std::uint64_t bytes_max,
                            std::uint64_t& read_bytes);

}  // namespace millrace
