#include "model/format/open.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "io/file.h"
#include "model/format/gguf.h"
#include "model/format/gguf_split.h"
#include "model/format/safetensors/folder.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

constexpr std::string_view gguf_magic = "GGUF";
constexpr std::uint64_t shown_bytes = 8;

Error refuse(ErrorCode code, const std::string& path, std::string_view detail) {
  return Error{code, fmt::format("{}: {}", printable(path, 4096), detail)};
}

// The folder of a published checkpoint, or what stands for it: its index, or a file of weights.
// Empty: a file of another kind. Refuses by name what is not there.
Result<std::string> checkpoint_folder(const std::string& path) {
  std::error_code cause;
  const std::filesystem::file_status status = std::filesystem::status(path, cause);
  if (!std::filesystem::exists(status))
    return refuse(ErrorCode::io, path, cause ? cause.message() : "no such file");
  if (std::filesystem::is_directory(status)) return path;
  if (!path.ends_with(".safetensors") && !path.ends_with(".safetensors.index.json"))
    return std::string();
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? std::string(".") : folder;
}

}  // namespace

Result<Checkpoint> open_checkpoint(const std::string& path) {
  MILLRACE_ASSIGN(const std::string folder, checkpoint_folder(path));
  if (!folder.empty()) return open_safetensors_folder(folder);
  std::string start;
  {
    MILLRACE_ASSIGN(const File file, File::open(path, DirectMode::off));
    start.resize(std::min(file.size_bytes(), shown_bytes));
    MILLRACE_TRY(file.read_exactly(0, start.data(), start.size()));
  }
  if (start.starts_with(gguf_magic)) return open_gguf(path);
  const Error error =
      start.empty()
          ? refuse(ErrorCode::format, path, "the file is empty")
          : refuse(ErrorCode::format, path,
                   fmt::format("not a model file: it starts with '{}', a GGUF file with 'GGUF'",
                               printable(start)));
  return explain_raw_slice(error, path);
}

}  // namespace millrace
