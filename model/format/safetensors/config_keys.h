// config.json as the metadata keys that GGUF files have. Pure, but for the log.
#pragma once

#include <string>
#include <string_view>

#include "model/format/safetensors/config_reader.h"
#include "model/format/safetensors/metadata.h"
#include "runtime/base/result.h"

namespace millrace {

// How the weights of the checkpoint are packed, by quantization_config.
enum class CheckpointPacking : unsigned char { none, block_fp8, mxfp4, awq };

struct ConfigFacts {
  std::string model_type;
  const char* ffn_norm = "ffn_norm";  // how GGUF files name the norm in front of the FFN
  CheckpointPacking packing = CheckpointPacking::none;
  bool tied_head = false;
  bool tied_is_given = false;                              // config.json says one or the other
  bool norms_less_one = false, experts_by_inputs = false;  // as in TensorRules
};

// Sets general.architecture and all keys of the architecture. Errors: `format` (a key is missing or
// has another kind of value), `unsupported` (model_type, quantization, or a setting that would
// change the result), with file and key.
Result<ConfigFacts> write_config_keys(const ConfigReader& whole, MetadataWriter& metadata);

}  // namespace millrace
