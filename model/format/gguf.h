// GGUF v2 and v3, single files and split ones, with every validation of kernels-safe reading
// (model/format/README.md). Reads headers only, never weights.
#pragma once

#include <string>

#include "model/format/checkpoint.h"
#include "runtime/base/result.h"

namespace millrace {

// Opens PATH (any shard of a split model). Errors: `io` (not found, unreadable), `format`
// (malformed: names file, key or tensor and the number), `unsupported` (version, byte order, tensor
// type that no kernel could know).
Result<Checkpoint> open_gguf(const std::string& path);

}  // namespace millrace
