#include "runtime/pipeline/bad_numbers.h"

#include <fmt/format.h>

namespace millrace {

Error bad_numbers(const ModelSpec& spec, LayerIndex layer, const char* where) {
  return {ErrorCode::format, fmt::format("{}: layer {}: {} is NaN or infinite; the weights are "
                                         "damaged or not of the type they claim",
                                         spec.files.front(), layer, where)};
}

}  // namespace millrace
