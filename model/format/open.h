// The door to model files: finds out which container a path is and opens it.
#pragma once

#include <string>

#include "model/format/checkpoint.h"
#include "runtime/base/result.h"

namespace millrace {

// Opens PATH by its first bytes. Errors: `io` (missing, unreadable), `unsupported` (safetensors, a
// directory), `format` (no model file, or a malformed one), else as open_gguf().
Result<Checkpoint> open_checkpoint(const std::string& path);

}  // namespace millrace
