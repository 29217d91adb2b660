#include "model/format/safetensors/special_keys.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace millrace {

namespace {

using IdList = std::vector<std::uint64_t>;

// The text of a token in tokenizer_config.json: a string, or an object with its content.
std::string token_text(const ConfigReader& config, const char* key) {
  const Json* value = config.find(key);
  if (value != nullptr && value->as_object() != nullptr) value = value->find("content");
  return value == nullptr || value->as_string() == nullptr ? std::string() : *value->as_string();
}

// Ids in a number or an array of them.
IdList ids_of(const ConfigReader& config, const char* key) {
  IdList ids;
  const auto add = [&](const Json& value) {
    std::int64_t id = 0;
    if (value.get_integer(id) && id >= 0) ids.push_back(static_cast<std::uint64_t>(id));
  };
  const Json* value = config.find(key);
  if (value == nullptr) return ids;
  if (value->as_array() == nullptr) add(*value);
  else
    for (const Json& item : *value->as_array()) add(item);
  return ids;
}

void write_template(const ConfigReader& config, MetadataWriter& metadata) {
  const Json* value = config.find("chat_template");
  if (value == nullptr) return;
  if (const std::string* text = value->as_string())
    return metadata.set("tokenizer.chat_template", *text);
  if (value->as_array() == nullptr) return;
  for (const Json& item : *value->as_array()) {  // several, by name
    const Json* name = item.find("name");
    const Json* text = item.find("template");
    if (name == nullptr || name->as_string() == nullptr || text == nullptr ||
        text->as_string() == nullptr)
      continue;
    const bool usual = *name->as_string() == "default";
    metadata.set(usual ? std::string("tokenizer.chat_template")
                       : "tokenizer.chat_template." + *name->as_string(),
                 *text->as_string());
  }
}

// The id of a token of exactly this text.
std::optional<std::uint64_t> id_of(const Checkpoint::Parts& parts, const std::string& text) {
  const auto found = parts.meta.find("tokenizer.ggml.tokens");
  const auto* tokens =
      found == parts.meta.end() ? nullptr : std::get_if<std::vector<std::string>>(&found->second);
  if (tokens == nullptr || text.empty()) return std::nullopt;
  const auto at = std::find(tokens->begin(), tokens->end(), text);
  if (at == tokens->end()) return std::nullopt;
  return static_cast<std::uint64_t>(at - tokens->begin());
}

// All ids that the sources name for a role, the most specific source first.
IdList role_ids(const SpecialSources& sources, const Checkpoint::Parts& parts, const char* text_key,
                const char* id_key) {
  IdList ids;
  const auto add = [&](std::uint64_t id) {
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(id);
  };
  if (sources.tokenizer_config)
    if (const auto id = id_of(parts, token_text(*sources.tokenizer_config, text_key))) add(*id);
  if (sources.generation_config)
    for (const std::uint64_t id : ids_of(*sources.generation_config, id_key)) add(id);
  if (ids.empty())
    for (const std::uint64_t id : ids_of(sources.config, id_key)) add(id);
  return ids;
}

// Whether the post-processor puts a special token in front of (behind) a single text.
bool template_adds(const ConfigReader& tokenizer, bool front) {
  const auto find_template = [](const Json& step) -> const Json* {
    const Json* type = step.find("type");
    const bool is = type != nullptr && type->as_string() != nullptr &&
                    *type->as_string() == "TemplateProcessing";
    return is ? step.find("single") : nullptr;
  };
  const Json* processor = tokenizer.find("post_processor");
  if (processor == nullptr) return false;
  const Json* single = find_template(*processor);
  const Json* list = processor->find("processors");
  if (single == nullptr && list != nullptr && list->as_array() != nullptr)
    for (const Json& step : *list->as_array())
      if (single == nullptr) single = find_template(step);
  if (single == nullptr || single->as_array() == nullptr || single->as_array()->empty())
    return false;
  const Json& piece = front ? single->as_array()->front() : single->as_array()->back();
  return piece.find("SpecialToken") != nullptr;
}

void write_flag(const SpecialSources& sources, MetadataWriter& metadata, const char* key,
                bool front) {
  const Json* given = sources.tokenizer_config ? sources.tokenizer_config->find(key) : nullptr;
  const bool is_given = given != nullptr && given->as_bool() != nullptr;
  metadata.set(std::string("tokenizer.ggml.") + key,
               is_given ? *given->as_bool() : template_adds(sources.tokenizer, front));
}

}  // namespace

void write_special_keys(const SpecialSources& sources, const Checkpoint::Parts& parts,
                        MetadataWriter& metadata) {
  const IdList bos = role_ids(sources, parts, "bos_token", "bos_token_id");
  if (!bos.empty()) metadata.set("tokenizer.ggml.bos_token_id", bos.front());
  const IdList eos = role_ids(sources, parts, "eos_token", "eos_token_id");
  // Of several ends the first is EOS; the next two end turns and messages.
  constexpr std::array keys = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                               "tokenizer.ggml.eom_token_id"};
  for (std::size_t i = 0; i < std::min(keys.size(), eos.size()); ++i) metadata.set(keys[i], eos[i]);
  if (sources.tokenizer_config) {
    if (const auto id = id_of(parts, token_text(*sources.tokenizer_config, "pad_token")))
      metadata.set("tokenizer.ggml.padding_token_id", *id);
    if (const auto id = id_of(parts, token_text(*sources.tokenizer_config, "unk_token")))
      metadata.set("tokenizer.ggml.unknown_token_id", *id);
    write_template(*sources.tokenizer_config, metadata);
  }
  write_flag(sources, metadata, "add_bos_token", true);
  write_flag(sources, metadata, "add_eos_token", false);
  if (!sources.chat_template.empty())
    metadata.set("tokenizer.chat_template", sources.chat_template);
}

}  // namespace millrace
