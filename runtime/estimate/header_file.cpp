#include "runtime/estimate/header_file.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "io/errno_text.h"

namespace millrace {

HeaderFile::HeaderFile(HeaderFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

HeaderFile::~HeaderFile() {
  if (fd_ >= 0) close(fd_);
}

std::string HeaderFile::path() const { return fmt::format("/proc/self/fd/{}", fd_); }

Result<HeaderFile> HeaderFile::create(std::string_view header, std::uint64_t file_bytes) {
  HeaderFile file;
  file.fd_ = memfd_create("header", MFD_CLOEXEC);
  const auto failed = [](const char* what) {
    return Error{ErrorCode::io, fmt::format("a header in memory: {}: {}", what, errno_text(errno))};
  };
  if (file.fd_ < 0) return failed("memfd_create");
  if (ftruncate(file.fd_, static_cast<off_t>(file_bytes)) != 0) return failed("its size");
  for (std::uint64_t done = 0; done < header.size();) {
    const ssize_t wrote =
        pwrite(file.fd_, header.data() + done, header.size() - done, static_cast<off_t>(done));
    if (wrote < 0 && errno != EINTR) return failed("writing");
    if (wrote > 0) done += static_cast<std::uint64_t>(wrote);
  }
  return file;
}

}  // namespace millrace
