#include "model/format/safetensors/folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "io/file.h"
#include "model/format/safetensors/config_keys.h"
#include "model/format/safetensors/shards.h"
#include "model/format/safetensors/special_keys.h"
#include "model/format/safetensors/tensors.h"
#include "model/format/safetensors/tokenizer_json.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr const char* template_name = "chat_template.jinja";
constexpr std::uint64_t config_bytes_max = 64 * MiB;
constexpr std::uint64_t tokenizer_bytes_max = 512 * MiB;

// One pass over a folder; what is read stays until the checkpoint is made.
class FolderReader {
 public:
  explicit FolderReader(const std::string& folder) : folder_(folder), metadata_(parts_) {}

  Result<Checkpoint> run() {
    if (!is_there("config.json"))
      return Error{ErrorCode::format,
                   fmt::format("{}: a directory without config.json is no published checkpoint",
                               printable(folder_, 4096))};
    MILLRACE_ASSIGN(config_, read("config.json", config_bytes_max));
    const ConfigReader config(path("config.json"), config_);
    MILLRACE_ASSIGN(const ConfigFacts facts, write_config_keys(config, metadata_));
    metadata_.set("general.name", folder_name());
    MILLRACE_TRY(read_tensors(config, facts));
    if (is_there("tokenizer.json")) MILLRACE_TRY(read_tokenizer(config));
    parts_.origin = path("config.json");
    for (const char* name : {"config.json", safetensors_index_name, "tokenizer.json",
                             "tokenizer_config.json", "generation_config.json", template_name})
      if (is_there(name)) parts_.companions.push_back(path(name));
    return Checkpoint(std::move(parts_));
  }

 private:
  std::string path(const char* name) const { return folder_ + "/" + name; }
  bool is_there(const char* name) const {
    std::error_code ignored;
    return std::filesystem::exists(path(name), ignored);
  }
  std::string folder_name() const {
    std::error_code ignored;
    const std::filesystem::path whole = std::filesystem::weakly_canonical(folder_, ignored);
    return whole.filename().string();
  }
  Result<Json> read(const char* name, std::uint64_t bytes_max) {
    return read_json_file(path(name), bytes_max, parts_.metadata_bytes);
  }

  Status read_tensors(const ConfigReader& config, const ConfigFacts& facts) {
    MILLRACE_ASSIGN(SafetensorsShards shards, read_shards(folder_));
    parts_.metadata_bytes += shards.read_bytes;
    MILLRACE_ASSIGN(parts_.tensors,
                    translate_tensors(shards, {facts.ffn_norm, facts.tied_head,
                                               facts.norms_less_one, facts.experts_by_inputs,
                                               facts.packing == CheckpointPacking::awq}));
    const bool head = std::any_of(parts_.tensors.begin(), parts_.tensors.end(),
                                  [](const TensorInfo& t) { return t.name == "output.weight"; });
    if (!head && facts.tied_is_given && !facts.tied_head)
      return config.bad("tie_word_embeddings", "false, but there is no tensor lm_head.weight");
    parts_.files = std::move(shards.files);
    return {};
  }

  Status read_tokenizer(const ConfigReader& config) {
    MILLRACE_ASSIGN(tokenizer_, read("tokenizer.json", tokenizer_bytes_max));
    const ConfigReader tokenizer(path("tokenizer.json"), tokenizer_);
    MILLRACE_TRY(write_tokenizer_keys(tokenizer, metadata_));
    SpecialSources sources{
        tokenizer, std::nullopt, std::nullopt, config.below("text_config").value_or(config), {}};
    MILLRACE_ASSIGN(sources.tokenizer_config, optional("tokenizer_config.json", tokenizer_config_));
    MILLRACE_ASSIGN(sources.generation_config,
                    optional("generation_config.json", generation_config_));
    MILLRACE_ASSIGN(sources.chat_template, read_template());
    write_special_keys(sources, parts_, metadata_);
    return {};
  }

  Result<std::optional<ConfigReader>> optional(const char* name, Json& kept) {
    if (!is_there(name)) return std::optional<ConfigReader>();
    MILLRACE_ASSIGN(kept, read(name, config_bytes_max));
    return std::optional(ConfigReader(path(name), kept));
  }

  Result<std::string> read_template() {
    if (!is_there(template_name)) return std::string();
    MILLRACE_ASSIGN(const File file, File::open(path(template_name), DirectMode::off));
    if (file.size_bytes() > limits::template_bytes_max)
      return Error{ErrorCode::format, fmt::format("{}: {} bytes, at most {} are read",
                                                  printable(path(template_name), 4096),
                                                  file.size_bytes(), limits::template_bytes_max)};
    std::string text(file.size_bytes(), '\0');
    MILLRACE_TRY(file.read_exactly(0, text.data(), text.size()));
    parts_.metadata_bytes += text.size();
    return text;
  }

  std::string folder_;
  Checkpoint::Parts parts_;
  MetadataWriter metadata_;
  Json config_, tokenizer_, tokenizer_config_, generation_config_;  // readers borrow them
};

}  // namespace

Result<Checkpoint> open_safetensors_folder(const std::string& folder) {
  std::string trimmed = folder;
  while (trimmed.size() > 1 && trimmed.ends_with('/')) trimmed.pop_back();
  return FolderReader(trimmed).run();
}

}  // namespace millrace
