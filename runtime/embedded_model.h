// The default model: a small one that comes with the program.
#pragma once

#include <string>

#include "runtime/base/result.h"

namespace millrace {

// Its path, looked for relative to the running binary (installed: ../share/millrace; build folder:
// ../model/embedded). `io` error that names the places if it is not there.
Result<std::string> embedded_model_path();

}  // namespace millrace
