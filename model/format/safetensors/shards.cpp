#include "model/format/safetensors/shards.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include "io/file.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr const char* single_name = "model.safetensors";
constexpr std::uint64_t index_bytes_max = 256 * MiB;

Error shard_error(const std::string& path, const std::string& detail) {
  return {ErrorCode::format, fmt::format("{}: {}", printable(path, 4096), detail)};
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// File of each tensor, as the index says, and one tensor of each file for messages.
struct Index {
  std::string path;
  std::unordered_map<std::string, std::string> file_of;
  std::map<std::string, std::string> tensor_of;  // ordered: files are numbered by their names
};

Status add_mapped(Index& index, const std::string& tensor, const Json& value) {
  const std::string* file = value.as_string();
  if (file == nullptr)
    return shard_error(index.path,
                       fmt::format("tensor {}: its file is no text", printable(tensor)));
  if (file->find('/') != std::string::npos || file->find('\\') != std::string::npos ||
      file->find('\0') != std::string::npos || !file->ends_with(".safetensors"))
    return shard_error(index.path, fmt::format("tensor {}: '{}' is no name of a shard beside the "
                                               "index",
                                               printable(tensor), printable(*file)));
  index.file_of.emplace(tensor, *file);
  index.tensor_of.emplace(*file, tensor);
  return {};
}

Result<Index> read_index(const std::string& path, std::uint64_t& read_bytes) {
  Index index;
  index.path = path;
  MILLRACE_ASSIGN(const Json json, read_json_file(path, index_bytes_max, read_bytes));
  const Json* map = json.find("weight_map");
  if (map == nullptr || map->as_object() == nullptr)
    return shard_error(path, "weight_map is missing or no object");
  for (const auto& [tensor, file] : *map->as_object())
    MILLRACE_TRY(add_mapped(index, tensor, file));
  if (index.file_of.empty()) return shard_error(path, "weight_map names no tensor");
  if (index.tensor_of.size() > limits::shards_max)
    return shard_error(path, fmt::format("{} shards, at most {} are allowed",
                                         index.tensor_of.size(), limits::shards_max));
  return index;
}

// Adds the tensors of one file; of a shard only those that the index looks for there.
Status add_file(SafetensorsShards& shards, const std::string& path, const std::string& name,
                const Index* index) {
  MILLRACE_ASSIGN(SafetensorsHeader header, read_safetensors_header(path));
  const auto file = static_cast<std::uint32_t>(shards.files.size());
  shards.files.push_back(path);
  shards.read_bytes += header.header_bytes;
  std::size_t left_out = 0;
  for (SafeTensor& tensor : header.tensors) {
    if (index != nullptr) {
      const auto mapped = index->file_of.find(tensor.name);
      if (mapped == index->file_of.end() || mapped->second != name) {
        ++left_out;
        continue;
      }
    }
    shards.by_name.emplace(tensor.name, shards.tensors.size());
    shards.tensors.push_back({std::move(tensor), file});
  }
  if (left_out > 0)
    log_debug(fmt::format("{}: {} tensors that the index does not look for here",
                          printable(path, 4096), left_out));
  return {};
}

}  // namespace

Result<Json> read_json_file(const std::string& path, std::uint64_t bytes_max,
                            std::uint64_t& read_bytes) {
  MILLRACE_ASSIGN(const File file, File::open(path, DirectMode::off));
  if (file.size_bytes() > bytes_max)
    return shard_error(path,
                       fmt::format("{} bytes, at most {} are read", file.size_bytes(), bytes_max));
  std::string text(file.size_bytes(), '\0');
  MILLRACE_TRY(file.read_exactly(0, text.data(), text.size()));
  read_bytes += text.size();
  auto json = Json::parse(text, {.bytes_max = bytes_max, .depth_max = 64});
  if (!json) return shard_error(path, json.error().what);
  if (json->as_object() == nullptr) return shard_error(path, "is no JSON object");
  return std::move(json).value();
}

Result<SafetensorsShards> read_shards(const std::string& folder) {
  SafetensorsShards shards;
  const std::string index_path = folder + "/" + safetensors_index_name;
  if (!is_there(index_path)) {
    const std::string path = folder + "/" + single_name;
    if (!is_there(path))
      return shard_error(folder, fmt::format("no checkpoint: neither {} nor {} is there",
                                             single_name, safetensors_index_name));
    MILLRACE_TRY(add_file(shards, path, single_name, nullptr));
    return shards;
  }
  MILLRACE_ASSIGN(const Index index, read_index(index_path, shards.read_bytes));
  for (const auto& [name, tensor] : index.tensor_of) {
    const std::string path = folder + "/" + name;
    if (!is_there(path))
      return shard_error(path, fmt::format("this shard is missing; {} names it for tensor {}",
                                           safetensors_index_name, printable(tensor)));
    MILLRACE_TRY(add_file(shards, path, name, &index));
  }
  if (shards.tensors.size() != index.file_of.size())
    for (const auto& [tensor, file] : index.file_of)
      if (shards.find(tensor) == nullptr)
        return shard_error(folder + "/" + file,
                           fmt::format("tensor {}: missing, though {} names this shard for it",
                                       printable(tensor), safetensors_index_name));
  return shards;
}

}  // namespace millrace
