// Files that a command is about to write, checked before anything is computed: a name that turns
// out to be the model, the prompt or another output would destroy it.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace millrace::tools {

// A path and the flag that it came with, for messages. An empty path: not given.
struct NamedPath {
  std::string flag;
  std::string path;
  bool pack_goes_on = false;  // an output that may be there as an unfinished pack
};

// Compares each output with all inputs (- is stdin) and all other outputs, by device and inode
// where it exists, else by its folder and name; links are followed. `usage` error that names flag
// and path if two are one file, or if an output is there and holds a model (GGUF, safetensors) or a
// packed pool; `io` error that names them if it cannot be created or written. Changes nothing.
// Devices such as /dev/null are everybody's.
Status check_outputs(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs);

// As inputs, the files of a model: reads its header, unless nothing is to be written.
Result<std::vector<NamedPath>> model_files(const std::string& model_path,
                                           const std::vector<NamedPath>& outputs);

}  // namespace millrace::tools
