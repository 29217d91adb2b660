// A published checkpoint: a folder with config.json, tokenizer.json and safetensors, opened as the
// model that a converted GGUF file of it would be. Reads headers and JSON, never weights.
#pragma once

#include <string>

#include "model/format/checkpoint.h"
#include "runtime/base/result.h"

namespace millrace {

// Without tokenizer.json the checkpoint has no tokenizer (which what needs one refuses). Errors:
// `io`, `format` and `unsupported`, each with the file and what in it.
Result<Checkpoint> open_safetensors_folder(const std::string& folder);

}  // namespace millrace
