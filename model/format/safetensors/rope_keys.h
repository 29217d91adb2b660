// The rotary settings of config.json, in either of the places where it may have them, as the keys
// that GGUF files have. Pure.
#pragma once

#include "model/format/safetensors/config_reader.h"
#include "model/format/safetensors/metadata.h"
#include "runtime/base/result.h"

namespace millrace {

// The share of a head that rotates, above 0 and at most 1.
Result<double> rotary_share(const ConfigReader& config);

// Base and scaling. `unsupported`: a kind of scaling that is not none, linear, yarn or llama3.
Status rope_keys(const ConfigReader& config, MetadataWriter& metadata);

// yarn_log_multiplier of DeepSeek's family, where the scaling is yarn.
Status yarn_multiplier_key(const ConfigReader& config, MetadataWriter& metadata);

}  // namespace millrace
