#include "io/write_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "io/errno_text.h"
#include "io/file.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

Error failure(const std::string& path, const char* what, int code) {
  return Error{ErrorCode::io,
               fmt::format("{}: {}: {}", printable(path, 4096), what, errno_text(code))};
}

// 0 or the errno of the first failure.
int write_all(int fd, std::string_view bytes) noexcept {
  while (!bytes.empty()) {
    const ssize_t wrote = write(fd, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(wrote));
  }
  return 0;
}

Status write_in_place(const std::string& path, std::string_view bytes) {
  const int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return failure(path, "cannot be opened for writing", errno);
  int code = write_all(fd, bytes);
  if (close(fd) != 0 && code == 0) code = errno;
  if (code != 0) return failure(path, "writing", code);
  return {};
}

}  // namespace

std::string behind_links(const std::string& path) {
  constexpr int links_max = 40;  // as the kernel's; more are refused by stat()
  std::filesystem::path made = path;
  for (int i = 0; i < links_max; ++i) {
    std::error_code failed;
    const std::filesystem::path target = std::filesystem::read_symlink(made, failed);
    if (failed) break;
    made = made.parent_path() / target;  // an absolute target replaces all of it
  }
  return made.string();
}

Status write_file_atomically(const std::string& named, std::string_view bytes) {
  const std::string path = behind_links(named);
  struct stat about = {};
  if (stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode) && !S_ISDIR(about.st_mode))
    return write_in_place(path, bytes);
  return replace_file(path, bytes);
}

Status replace_file(const std::string& path, std::string_view bytes) {
  const std::string beside = fmt::format("{}.{}.new", path, getpid());
  const int fd = open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return failure(path, "cannot be created", errno);
  int code = write_all(fd, bytes);
  if (code == 0 && fsync(fd) != 0) code = errno;
  if (close(fd) != 0 && code == 0) code = errno;
  if (code == 0 && std::rename(beside.c_str(), path.c_str()) != 0) code = errno;
  if (code == 0) return {};
  unlink(beside.c_str());
  return failure(path, "writing", code);
}

void remove_unfinished(const std::string& path) {
  const std::string file = behind_links(path);
  struct stat about = {};
  if (lstat(file.c_str(), &about) == 0 && S_ISREG(about.st_mode)) unlink(file.c_str());
}

Result<std::string> read_whole_file(const std::string& path, std::uint64_t bytes_max) {
  MILLRACE_ASSIGN(const File file, File::open(path, DirectMode::off));
  if (file.size_bytes() > bytes_max)
    return Error{ErrorCode::format,
                 fmt::format("{}: is too long: {}, at most {}", printable(path, 4096),
                             format_bytes(file.size_bytes()), format_bytes(bytes_max))};
  std::string text(file.size_bytes(), '\0');
  MILLRACE_TRY(file.read_exactly(0, text.data(), text.size()));
  return text;
}

}  // namespace millrace
