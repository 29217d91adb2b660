// The tensors of a checkpoint folder as a model's tensors: names and types as GGUF files have them,
// codes joined with the scales that belong to them. Pure.
#pragma once

#include <string_view>
#include <vector>

#include "model/format/safetensors/shards.h"
#include "model/tensor.h"
#include "runtime/base/result.h"

namespace millrace {

struct TensorRules {
  std::string_view ffn_norm;    // the family's name of the norm in front of the FFN
  bool tied_head = false;       // lm_head, if there, is the embedding again
  bool norms_less_one = false;  // norms, but those of delta nets, hold what they differ from 1 by
  bool experts_by_inputs = false;  // experts' stacked matrices, where plain, are turned over
  bool awq = false;                // packed codes are AWQ's, in groups of 128
};

// In the order of the shards. What has no name here is left out, and logged unless it is a part
// that is never run. `format` and `unsupported` errors name shard and tensor: scales without codes
// or of another shape, codes without scales, a type that we do not read.
Result<std::vector<TensorInfo>> translate_tensors(const SafetensorsShards& shards,
                                                  const TensorRules& rules);

}  // namespace millrace
