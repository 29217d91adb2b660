// BOS, EOS, ends of turns and chat templates of a checkpoint folder, as the metadata keys that GGUF
// files have. Pure.
#pragma once

#include <optional>
#include <string>

#include "model/format/safetensors/config_reader.h"
#include "model/format/safetensors/metadata.h"

namespace millrace {

// The files where such things stand; absent ones are empty.
struct SpecialSources {
  const ConfigReader& tokenizer;                  // tokenizer.json
  std::optional<ConfigReader> tokenizer_config;   // tokenizer_config.json: by text
  std::optional<ConfigReader> generation_config;  // generation_config.json: by id
  const ConfigReader& config;  // config.json: by id, where the others say nothing
  std::string chat_template;   // chat_template.jinja, which wins if not empty
};

// After the tokens themselves were written. Texts that are no tokens are left out.
void write_special_keys(const SpecialSources& sources, const Checkpoint::Parts& parts,
                        MetadataWriter& metadata);

}  // namespace millrace
