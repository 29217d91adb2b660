#include "tools/output_paths.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>

#include "io/write_file.h"
#include "model/format/open.h"

namespace millrace::tools {

namespace {

// What a path leads to. A file that does not exist yet is known by its folder and its name in it.
struct Place {
  dev_t device = 0;
  ino_t inode = 0;
  std::string name;     // empty if the file exists
  bool shared = false;  // a character device: writing to it overwrites nothing
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
    return Place{found.st_dev, found.st_ino, {}, S_ISCHR(found.st_mode)};
  if (errno != ENOENT) return std::nullopt;
  const std::filesystem::path made = behind_links(path);
  if (stat(folder_of(made).c_str(), &found) != 0) return std::nullopt;
  return Place{found.st_dev, found.st_ino, made.filename().string(), false};
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
