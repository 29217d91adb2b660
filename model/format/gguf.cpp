#include "model/format/gguf.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "io/file.h"
#include "model/format/gguf_file.h"
#include "model/format/gguf_split.h"

namespace millrace {

namespace {

// Reads from `file`; a read that fails because the file was shortened says so.
Status read_source(const File& file, std::uint64_t offset, void* target, std::uint64_t bytes) {
  Status read = file.read_exactly(offset, target, bytes);
  if (read) return read;
  const Result<std::uint64_t> now = file.current_size();
  if (!now || *now >= file.size_bytes()) return read;
  return Error{ErrorCode::io, fmt::format("{}: the file was shortened from {} to {} bytes while it "
                                          "was being read",
                                          file.path(), file.size_bytes(), *now)};
}

Result<GgufFile> read_path(const std::string& path) {
  MILLRACE_ASSIGN(const File file, File::open(path, DirectMode::off));
  const auto read = [&](std::uint64_t offset, void* target, std::uint64_t bytes) {
    return read_source(file, offset, target, bytes);
  };
  Result<GgufFile> parsed = read_gguf_file({path, file.size_bytes(), read});
  if (!parsed) return explain_raw_slice(std::move(parsed).error(), path);
  return parsed;
}

}  // namespace

Result<Checkpoint> open_gguf(const std::string& path) {
  MILLRACE_ASSIGN(GgufFile opened, read_path(path));
  return join_gguf_shards(path, std::move(opened),
                          [](const std::string& shard) { return read_path(shard); });
}

}  // namespace millrace
