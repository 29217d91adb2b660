// Copies of a model's files on other drives (--mirror): found, held against the originals, opened.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"
#include "model/format/checkpoint.h"
#include "runtime/base/result.h"

namespace millrace {

// What there is a copy of. Borrowed; only read by open_mirror().
struct MirroredFiles {
  std::span<const File> files;                // of the model, then the packed pool, if there is one
  std::span<const std::uint64_t> head_bytes;  // of each: headers and tables, compared byte by byte
  std::optional<std::uint32_t> pool;          // which of them is the packed pool
};

struct Mirror {
  std::string path;
  std::vector<File> files;               // for reading
  std::vector<std::uint32_t> originals;  // by file: which of the model's it is a copy of
};

// Bytes before the first tensor of each file; of one without tensors, all.
std::vector<std::uint64_t> head_bytes(const Checkpoint& checkpoint, std::span<const File> files);

// Where the copy of `original` lies: PATH itself if it stands for one file (`alone`), else the file
// of the original's name in that folder, or beside it.
std::string mirror_file(const std::string& path, const std::string& original, bool alone);

// PATH is a packed pool, a model file, or a folder with the files of the model (and the pool, if it
// is there). Compared: sizes, heads (for a pool: all its digests), and blocks at 64 places of the
// rest. Errors name both files: `io` (missing, unreadable), `usage` (no copy; a pool without
// --pool).
Result<Mirror> open_mirror(const std::string& path, const MirroredFiles& of, DirectMode direct);

}  // namespace millrace
