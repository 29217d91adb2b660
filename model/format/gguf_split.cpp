#include "model/format/gguf_split.h"

#include <fmt/format.h>

#include <charconv>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

constexpr std::string_view suffix = ".gguf";
constexpr const char* total_key = "split.tensors.count";

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// Cuts "-00002" (or "-of-00003") off the end of `text` into `number`.
bool cut_number(std::string_view& text, std::string_view lead, std::uint32_t& number) {
  constexpr std::size_t digits = 5;
  if (text.size() < lead.size() + digits) return false;
  const std::string_view tail = text.substr(text.size() - digits);
  for (const char c : tail)
    if (!is_digit(c)) return false;
  std::from_chars(tail.data(), tail.data() + tail.size(), number);
  text.remove_suffix(digits);
  if (!text.ends_with(lead)) return false;
  text.remove_suffix(lead.size());
  return true;
}

// Cuts trailing characters that `wanted` takes; false if there is none.
template <class Wanted>
bool cut_trailing(std::string_view& text, Wanted wanted) {
  const std::size_t before = text.size();
  while (!text.empty() && wanted(text.back())) text.remove_suffix(1);
  return text.size() < before;
}

Error shard_error(const std::string& path, const std::string& detail) {
  return Error{ErrorCode::format, fmt::format("{}: {}", printable(path, 4096), detail)};
}

// An integer of the `split.` keys, of whatever width; 0 if the key is absent.
Result<std::uint64_t> split_number(const std::string& path, const GgufFile& file, const char* key) {
  const auto found = file.meta.find(key);
  if (found == file.meta.end()) return std::uint64_t{0};
  if (const auto* number = std::get_if<std::uint64_t>(&found->second)) return *number;
  const auto* number = std::get_if<std::int64_t>(&found->second);
  if (number != nullptr && *number >= 0) return static_cast<std::uint64_t>(*number);
  return shard_error(path, fmt::format("key '{}': not an integer from 0", key));
}

Status check_shard(const std::string& path, const GgufFile& file, std::uint32_t index,
                   std::uint32_t count) {
  MILLRACE_ASSIGN(const std::uint64_t says_count, split_number(path, file, "split.count"));
  if (says_count != count)
    return shard_error(path, fmt::format("key 'split.count' is {}, but the file name says {}: the "
                                         "shards do not belong together or were renamed",
                                         says_count, count));
  MILLRACE_ASSIGN(const std::uint64_t says_index, split_number(path, file, "split.no"));
  if (!file.meta.contains("split.no") || says_index != index)
    return shard_error(path, fmt::format("key 'split.no' is {}, expected {} (counted from 0): the "
                                         "shards do not belong together or were renamed",
                                         says_index, index));
  return {};
}

// `split.tensors.count`, of which the first shard must have one; others repeat it or leave it out.
Status check_total(const std::string& path, const GgufFile& file, std::uint64_t total) {
  if (!file.meta.contains(total_key)) return {};
  MILLRACE_ASSIGN(const std::uint64_t says, split_number(path, file, total_key));
  if (says == total) return {};
  return shard_error(path, fmt::format("key '{}' is {}, but the first shard says {}: the shards do "
                                       "not belong together",
                                       total_key, says, total));
}

// Moves the tensors of one shard into the whole, as file number `index`.
Status add_tensors(const std::string& path, std::uint32_t index, std::vector<TensorInfo> tensors,
                   std::unordered_set<std::string>& names, Checkpoint::Parts& parts) {
  for (TensorInfo& tensor : tensors) {
    if (!names.insert(tensor.name).second)
      return shard_error(
          path, fmt::format("tensor '{}' is in an earlier shard too", printable(tensor.name)));
    tensor.file = index;
    parts.tensors.push_back(std::move(tensor));
  }
  return {};
}

Checkpoint single(const std::string& path, GgufFile file) {
  return Checkpoint({{path},
                     std::move(file.tensors),
                     std::move(file.keys),
                     std::move(file.meta),
                     file.metadata_bytes});
}

// Reads shard `index`; a failure says which shard of how many it was.
Result<GgufFile> read_numbered(const ShardName& name, std::uint32_t index,
                               FunctionRef<Result<GgufFile>(const std::string&)> read_shard) {
  Result<GgufFile> read = read_shard(shard_path(name, index));
  if (read) return read;
  Error error = std::move(read).error();
  error.what = fmt::format("shard {} of {}: {}", index + 1, name.count, error.what);
  return error;
}

// Adds up all shards. The metadata of the model is that of the first one.
Result<Checkpoint> join(const ShardName& name, GgufFile opened,
                        FunctionRef<Result<GgufFile>(const std::string&)> read_shard) {
  Checkpoint::Parts parts;
  std::unordered_set<std::string> names;
  std::uint64_t total = 0;
  for (std::uint32_t i = 0; i < name.count; ++i) {
    const std::string path = shard_path(name, i);
    GgufFile shard;
    if (i == name.index) {
      shard = std::move(opened);
    } else {
      MILLRACE_ASSIGN(shard, read_numbered(name, i, read_shard));
    }
    MILLRACE_TRY(check_shard(path, shard, i, name.count));
    if (i == 0) {
      if (!shard.meta.contains(total_key))
        return shard_error(path, fmt::format("key '{}' is missing", total_key));
      MILLRACE_ASSIGN(total, split_number(path, shard, total_key));
    }
    MILLRACE_TRY(check_total(path, shard, total));
    MILLRACE_TRY(add_tensors(path, i, std::move(shard.tensors), names, parts));
    parts.files.push_back(path);
    parts.metadata_bytes += shard.metadata_bytes;
    if (i == 0) {
      parts.keys = std::move(shard.keys);
      parts.meta = std::move(shard.meta);
    }
  }
  if (parts.tensors.size() != total)
    return shard_error(parts.files.front(),
                       fmt::format("key '{}' is {}, but the {} shards hold {} tensors", total_key,
                                   total, name.count, parts.tensors.size()));
  return Checkpoint(std::move(parts));
}

}  // namespace

std::optional<ShardName> parse_shard_name(std::string_view path) {
  if (!path.ends_with(suffix)) return std::nullopt;
  path.remove_suffix(suffix.size());
  ShardName name;
  std::uint32_t number = 0;
  if (!cut_number(path, "-of-", name.count) || !cut_number(path, "-", number)) return std::nullopt;
  if (number < 1 || number > name.count) return std::nullopt;
  name.prefix = path;
  name.index = number - 1;
  return name;
}

std::string shard_path(const ShardName& name, std::uint32_t index) {
  return fmt::format("{}-{:05}-of-{:05}{}", name.prefix, index + 1, name.count, suffix);
}

bool is_raw_slice_name(std::string_view path) {
  std::string_view rest = path;
  if (cut_trailing(rest, is_digit) && rest.ends_with("of")) {
    rest.remove_suffix(2);
    if (cut_trailing(rest, is_digit) && rest.ends_with(".part")) return true;
  }
  rest = path;
  return cut_trailing(rest, [](char c) { return c >= 'a' && c <= 'z'; }) &&
         rest.ends_with("-split-");
}

Error explain_raw_slice(Error error, std::string_view path) {
  if (is_raw_slice_name(path) && error.code != ErrorCode::io)
    error.what +=
        " (by its name this is one slice of a file that was cut with split; join all slices in "
        "order first: cat SLICES > MODEL.gguf)";
  return error;
}

Result<Checkpoint> join_gguf_shards(const std::string& path, GgufFile opened,
                                    FunctionRef<Result<GgufFile>(const std::string&)> read_shard) {
  MILLRACE_ASSIGN(const std::uint64_t count, split_number(path, opened, "split.count"));
  if (count <= 1) {
    return single(path, std::move(opened));
  }
  if (count > limits::shards_max)
    return shard_error(path, fmt::format("key 'split.count' is {}, at most {} shards are allowed",
                                         count, limits::shards_max));
  const std::optional<ShardName> name = parse_shard_name(path);
  if (!name)
    return shard_error(
        path, fmt::format("is one of {} shards (key 'split.count'), but its name does not end as "
                          "-00001-of-{:05}.gguf: give the shards their names back",
                          count, count));
  MILLRACE_TRY(check_shard(path, opened, name->index, name->count));
  return join(*name, std::move(opened), read_shard);
}

}  // namespace millrace
