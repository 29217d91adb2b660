// The error of a run that meets NaN or infinity. Pure.
#pragma once

#include "model/model_spec.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

// `where`: what is not finite, as in "a router logit".
Error bad_numbers(const ModelSpec& spec, LayerIndex layer, const char* where);

}  // namespace millrace
