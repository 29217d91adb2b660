// The door to model files: finds out which container a path is and opens it.
#pragma once

#include <string>

#include "model/format/checkpoint.h"
#include "runtime/base/result.h"

namespace millrace {

// Opens PATH: a folder (or its index, or a file of its weights) as a safetensors checkpoint,
// another file by its first bytes. Errors: `io` (missing, unreadable), `format` (no model file, or
// a malformed one), else as open_gguf() and open_safetensors_folder().
Result<Checkpoint> open_checkpoint(const std::string& path);

}  // namespace millrace
