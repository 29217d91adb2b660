#include "runtime/mirror.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "model/format/pack_file.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t chunk_bytes = 1 * MiB;
constexpr std::uint64_t sample_bytes = 4 * KiB;
constexpr std::uint64_t samples = 64;

Error no_copy(const File& copy, const File& original, const std::string& difference) {
  return Error{ErrorCode::usage,
               fmt::format("--mirror {}: is no copy of {}: {}", printable(copy.path(), 4096),
                           printable(original.path(), 4096), difference)};
}

// Compares stretches of two files.
class Comparison {
 public:
  Comparison(const File& copy, const File& original) : copy_(copy), original_(original) {}

  Status equal(std::uint64_t offset, std::uint64_t bytes, const char* what) {
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint64_t count = std::min(bytes - done, chunk_bytes);
      ours_.resize(count);
      theirs_.resize(count);
      MILLRACE_TRY(original_.read_exactly(offset + done, ours_.data(), count));
      MILLRACE_TRY(copy_.read_exactly(offset + done, theirs_.data(), count));
      const auto differ = std::mismatch(ours_.begin(), ours_.end(), theirs_.begin());
      if (differ.first != ours_.end())
        return no_copy(
            copy_, original_,
            fmt::format("{} at byte {}", what,
                        offset + done + static_cast<std::uint64_t>(differ.first - ours_.begin())));
      done += count;
    }
    return {};
  }

 private:
  const File& copy_;
  const File& original_;
  std::vector<std::byte> ours_, theirs_;
};

Status check_copy(const File& copy, const File& original, std::uint64_t head) {
  const std::uint64_t size = original.size_bytes();
  if (copy.size_bytes() != size)
    return no_copy(copy, original, fmt::format("it has {} bytes, not {}", copy.size_bytes(), size));
  Comparison comparison(copy, original);
  head = std::min(head, size);
  MILLRACE_TRY(comparison.equal(0, head, "its header differs"));
  // Models of one shape have equal headers: their weights tell them apart.
  const std::uint64_t rest = size - head;
  for (std::uint64_t i = 0; i < samples && rest > 0; ++i) {
    const std::uint64_t at = head + rest / samples * i;
    MILLRACE_TRY(
        comparison.equal(at, std::min(sample_bytes, size - at), "its weights differ, for one"));
  }
  return {};
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// Which of the files PATH has copies of. A folder may leave the pool out.
Result<std::vector<std::uint32_t>> mirrored(const std::string& path, const MirroredFiles& of) {
  if (is_pack(path)) {
    if (of.pool) return std::vector<std::uint32_t>{*of.pool};
    return Error{ErrorCode::usage,
                 fmt::format("--mirror {}: is a packed pool: name the one that it is a copy of "
                             "with --pool",
                             printable(path, 4096))};
  }
  std::vector<std::uint32_t> list;
  for (std::uint32_t i = 0; i < of.files.size(); ++i) {
    std::error_code ignored;
    if (i == of.pool &&
        !(is_folder(path) && fs::exists(mirror_file(path, of.files[i].path(), false), ignored)))
      continue;
    list.push_back(i);
  }
  return list;
}

}  // namespace

std::vector<std::uint64_t> head_bytes(const Checkpoint& checkpoint, std::span<const File> files) {
  std::vector<std::uint64_t> heads;
  for (const File& file : files) heads.push_back(file.size_bytes());
  for (const TensorInfo& tensor : checkpoint.tensors())
    if (tensor.file < heads.size())
      heads[tensor.file] = std::min(heads[tensor.file], tensor.offset_bytes);
  return heads;
}

std::string mirror_file(const std::string& path, const std::string& original, bool alone) {
  const fs::path name = fs::path(original).filename();
  if (is_folder(path)) return (fs::path(path) / name).string();
  return alone ? path : (fs::path(path).parent_path() / name).string();
}

Result<Mirror> open_mirror(const std::string& path, const MirroredFiles& of, DirectMode direct) {
  Mirror mirror;
  mirror.path = path;
  MILLRACE_ASSIGN(mirror.originals, mirrored(path, of));
  const bool alone = mirror.originals.size() == 1;
  for (const std::uint32_t i : mirror.originals) {
    const File& original = of.files[i];
    auto opened = File::open(mirror_file(path, original.path(), alone), direct);
    if (!opened)
      return Error{opened.error().code, fmt::format("--mirror {} (for {})", opened.error().what,
                                                    printable(original.path(), 4096))};
    MILLRACE_TRY(check_copy(*opened, original, of.head_bytes[i]));
    mirror.files.push_back(*std::move(opened));
  }
  return mirror;
}

}  // namespace millrace
