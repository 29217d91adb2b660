// Direct reads or the page cache: where a model fits into the memory that its plan leaves free, the
// system's cache holds what ours does not.
#pragma once

#include "io/file.h"
#include "model/model_spec.h"
#include "runtime/base/result.h"
#include "runtime/config.h"
#include "runtime/machine.h"

namespace millrace {

// `config.direct`, or for `automatic`: `off` where the files, the trunk and the cache that was
// asked for fit into what is available side by side, and a probe of 16 MiB is read faster again
// through the page cache than directly. Under a preset that sizes the cache itself, ours takes the
// memory. Reads at most 48 MiB; a file that cannot be read is left to who opens it.
DirectMode choose_direct(const ModelSpec& spec, const EngineConfig& config, const Machine& machine);

}  // namespace millrace
