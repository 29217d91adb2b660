#include "tools/output_paths.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>

#include "io/file.h"
#include "io/write_file.h"
#include "model/format/open.h"
#include "model/format/pack_file.h"

namespace millrace::tools {

namespace {

// What a path leads to. A file that does not exist yet is known by its folder and its name in it.
struct Place {
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;     // empty if the file exists
  bool shared = false;  // a character device: writing to it overwrites nothing
  bool regular = false;
  bool operator==(const Place& other) const {
    return device == other.device && inode == other.inode && name == other.name;
  }
};

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

// The place of a path; empty, with errno set, if nothing is or can be there.
std::optional<Place> find_place(const std::string& path) {
  struct stat found = {};
  if ((path == "-" ? fstat(STDIN_FILENO, &found) : stat(path.c_str(), &found)) == 0)
    return Place{found.st_dev, found.st_ino, {}, S_ISCHR(found.st_mode), S_ISREG(found.st_mode)};
  if (errno != ENOENT) return std::nullopt;
  const std::filesystem::path made = behind_links(path);
  if (stat(folder_of(made).c_str(), &found) != 0) return std::nullopt;
  return Place{found.st_dev, found.st_ino, made.filename().string()};
}

// 0, or why `path` cannot be opened for writing.
int why_not_writable(const std::string& path, const Place& place) {
  if (!place.name.empty())
    return access(folder_of(behind_links(path)).c_str(), W_OK | X_OK) == 0 ? 0 : errno;
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) return errno;
  if (S_ISDIR(found.st_mode)) return EISDIR;
  return access(path.c_str(), W_OK) == 0 ? 0 : errno;
}

// Whether these are the first bytes of a safetensors file: the length of its header, then that, a
// JSON object.
bool begins_as_safetensors(std::string_view start) {
  constexpr std::size_t length_bytes = 8;
  constexpr std::uint64_t header_bytes_max = std::uint64_t{1} << 40;
  if (start.size() <= length_bytes || start[length_bytes] != '{') return false;
  std::uint64_t header = 0;
  for (std::size_t i = length_bytes; i-- > 0;) header = header << 8 | std::uint8_t(start[i]);
  return header > 0 && header < header_bytes_max;
}

// What an existing file holds that nobody wants to lose; empty: nothing of that kind.
std::string what_is_lost(const NamedPath& output) {
  const std::string& path = output.path;
  const auto file = File::open(path, DirectMode::off);  // what cannot be read is judged by its name
  std::string start;
  if (file) {
    start.resize(std::min<std::uint64_t>(file->size_bytes(), 16));
    if (!file->read_exactly(0, start.data(), start.size())) start.clear();
  }
  const auto named = [](const std::filesystem::path& name) {
    return name.extension() == ".safetensors";
  };
  if (start.starts_with("GGUF")) return "a model (GGUF)";
  if (start.starts_with(PackIndex::magic) && !output.pack_goes_on) return "a packed pool";
  if (begins_as_safetensors(start) || named(path) || named(behind_links(path)))
    return "a part of a model (safetensors)";
  return {};
}

struct Known {
  const NamedPath* named;
  Place place;
};

}  // namespace

Status check_outputs(const std::vector<NamedPath>& outputs, const std::vector<NamedPath>& inputs) {
  std::vector<Known> known;
  for (const NamedPath& input : inputs) {
    // One that is not there is refused by who reads it.
    const auto place = input.path.empty() ? std::nullopt : find_place(input.path);
    if (place && !place->shared) known.push_back({&input, *place});
  }
  for (const NamedPath& output : outputs) {
    if (output.path.empty()) continue;
    const auto place = find_place(output.path);
    const int failure = place ? why_not_writable(output.path, *place) : errno;
    if (failure != 0)
      return Error{ErrorCode::io, fmt::format("{} {}: cannot be written: {}", output.flag,
                                              output.path, std::strerror(failure))};
    if (place->shared) continue;
    const auto same = std::find_if(known.begin(), known.end(),
                                   [&](const Known& other) { return other.place == *place; });
    if (same != known.end())
      return Error{ErrorCode::usage,
                   fmt::format("{} {}: is the same file as {} {}, which it would overwrite: give "
                               "another path",
                               output.flag, output.path, same->named->flag, same->named->path)};
    const std::string lost = place->regular ? what_is_lost(output) : std::string();
    if (!lost.empty())
      return Error{ErrorCode::usage,
                   fmt::format("{} {}: is {}, which it would overwrite: give another path, or "
                               "remove that file first",
                               output.flag, output.path, lost)};
    known.push_back({&output, *place});
  }
  return {};
}

Result<std::vector<NamedPath>> model_files(const std::string& model_path,
                                           const std::vector<NamedPath>& outputs) {
  std::vector<NamedPath> files;
  const auto given = [](const NamedPath& output) { return !output.path.empty(); };
  if (std::none_of(outputs.begin(), outputs.end(), given)) return files;
  MILLRACE_ASSIGN(const Checkpoint checkpoint, open_checkpoint(model_path));
  for (const std::string& path : checkpoint.files()) files.push_back({"-m", path});
  for (const std::string& path : checkpoint.companions()) files.push_back({"-m", path});
  return files;
}

}  // namespace millrace::tools
