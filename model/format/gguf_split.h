// Split GGUF models: the names of shards, and one checkpoint made of all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/format/checkpoint.h"
#include "model/format/gguf_file.h"
#include "runtime/base/function_ref.h"
#include "runtime/base/result.h"

namespace millrace {

// What "dir/m-00002-of-00003.gguf" says.
struct ShardName {
  std::string prefix;       // "dir/m"
  std::uint32_t index = 0;  // 0-based, below count
  std::uint32_t count = 0;
};

std::optional<ShardName> parse_shard_name(std::string_view path);
std::string shard_path(const ShardName& name, std::uint32_t index);

// True for "m.gguf.part1of2" and "m.gguf-split-a": raw slices made by split(1), not GGUF files.
bool is_raw_slice_name(std::string_view path);

// Adds to an error about such a file how to join the slices.
Error explain_raw_slice(Error error, std::string_view path);

// Makes the checkpoint that `opened`, read from `path`, belongs to: alone, or with the other shards
// read through `read_shard`. Refuses shards that do not belong together.
Result<Checkpoint> join_gguf_shards(
    const std::string& path, GgufFile opened,
    FunctionRef<Result<GgufFile>(const std::string& shard)> read_shard);

}  // namespace millrace
