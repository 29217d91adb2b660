// An open file to read from: with O_DIRECT where allowed and possible, and why not otherwise.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/result.h"

namespace millrace {

enum class DirectMode : std::uint8_t {
  automatic,  // O_DIRECT if the file system takes it, else buffered (logged once)
  on,         // O_DIRECT or fail with `io`
  off,        // page cache
};

// Owns the descriptor; move-only. A deleted file stays readable while it is open. Reading is
// thread-safe.
class File {
 public:
  // Fails with `io`: "PATH: cause". A directory or a special file is refused.
  static Result<File> open(const std::string& path, DirectMode mode);
  File(File&&) noexcept;
  File& operator=(File&&) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  int fd() const noexcept { return fd_; }
  const std::string& path() const noexcept { return path_; }
  std::uint64_t size_bytes() const noexcept { return size_bytes_; }  // when opened
  bool direct() const noexcept { return direct_; }
  // Offsets, lengths and target addresses of reads must be multiples of this; 1 when not direct.
  std::uint32_t block_bytes() const noexcept { return block_bytes_; }
  const std::string& buffered_reason() const noexcept {
    return buffered_reason_;
  }  // empty when direct

  // Fails with `io` if the file was written to since it was opened (its modification time differs):
  // what was read may be a mixture.
  Status check_unchanged() const;

  // The size now (fstat): smaller than size_bytes() if the file was truncated meanwhile.
  Result<std::uint64_t> current_size() const;

  // Blocking read of exactly `bytes` at `offset` with any alignment (through a second, buffered
  // descriptor when direct): for headers and other small things. Fails with `io` on errors and on
  // end of file.
  Status read_exactly(std::uint64_t offset, void* target, std::uint64_t bytes) const;

 private:
  File() = default;
  int fd_ = -1;
  int buffered_fd_ = -1;
  std::string path_;
  std::uint64_t size_bytes_ = 0;
  std::int64_t modified_ns_ = 0;  // when opened
  bool direct_ = false;
  std::uint32_t block_bytes_ = 1;
  std::string buffered_reason_;
};

}  // namespace millrace
