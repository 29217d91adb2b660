#include "runtime/embedded_model.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace millrace {

Result<std::string> embedded_model_path() {
  constexpr const char* name = "little-tales-moe-42M-mxfp4.gguf";
  std::error_code error;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path folder = binary.parent_path();
  std::string places;
  for (const char* place : {"../share/millrace", "../model/embedded", "../../model/embedded"}) {
    const std::filesystem::path path = (folder / place / name).lexically_normal();
    if (std::filesystem::is_regular_file(path, error)) return path.string();
    places += (places.empty() ? "" : ", ") + path.string();
  }
  return Error{
      ErrorCode::io,
      fmt::format("the embedded model is not installed (looked for {}): give a model with -m",
                  places)};
}

}  // namespace millrace
