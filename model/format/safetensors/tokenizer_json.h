// tokenizer.json, and the files beside it, as the metadata keys that GGUF files have: byte-level
// BPE
// ("gpt2") or BPE with byte fallback, which becomes scored pieces ("llama"). Pure, but for the log.
#pragma once

#include "model/format/safetensors/config_reader.h"
#include "model/format/safetensors/metadata.h"
#include "runtime/base/result.h"

namespace millrace {

// `format`: a part is missing, of another kind, or does not fit the others (an id twice, a merge of
// texts that are no tokens); `unsupported`: another kind of tokenizer, by name. With the file.
Status write_tokenizer_keys(const ConfigReader& tokenizer, MetadataWriter& metadata);

}  // namespace millrace
