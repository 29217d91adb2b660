#include "io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "io/errno_text.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr std::uint32_t probe_bytes_max = 64 * 1024;

Error io_error(const std::string& path, const std::string& cause) {
  return Error{ErrorCode::io, fmt::format("{}: {}", printable(path, 4096), cause)};
}

// The errnos of open(2) for which there is something better to say than their name.
std::string open_failure(int code) {
  switch (code) {
    case ENOENT:
      return "no such file";
    case ENOTDIR:
      return "no such file: a part of the path is not a directory";
    case EACCES:
    case EPERM:
      return "permission denied";
    case EISDIR:
      return "is a directory";
    case ELOOP:
      return "too many symbolic links, or links in a circle";
    case ENAMETOOLONG:
      return "the name is too long";
    case EMFILE: {
      rlimit limit = {};
      getrlimit(RLIMIT_NOFILE, &limit);
      return fmt::format("this process has {} files open, its limit: raise it with `ulimit -n`",
                         limit.rlim_cur);
    }
    case ENFILE:
      return "the system's limit of open files is reached (sysctl fs.file-max)";
    case ENXIO:
    case ENODEV:
      return "is a device or socket that nothing serves, not a regular file";
    case ENOMEM:
      return "the kernel has no memory left to open it";
    case ESTALE:
      return "stale file handle: the network file system lost the file";
    case EIO:
      return "the drive reports an error (EIO): see the kernel's log";
    default:  // EINVAL, EOVERFLOW, ETXTBSY, EWOULDBLOCK, EBUSY…: none is expected for a plain read
      return errno_text(code);
  }
}

// A descriptor, or a negative errno.
int open_retrying(const std::string& path, int flags) noexcept {
  while (true) {
    const int fd = ::open(path.c_str(), flags | O_RDONLY | O_CLOEXEC);
    if (fd >= 0) return fd;
    if (errno != EINTR) return -errno;
  }
}

// True if a read of one block, aligned to no more than a block in file and memory, is taken.
bool direct_read_works(int fd, std::uint32_t block_bytes) {
  const std::size_t room = 2 * std::size_t{block_bytes};
  void* memory = nullptr;
  if (posix_memalign(&memory, room, room) != 0) return false;
  const std::unique_ptr<void, void (*)(void*)> owned(memory, std::free);
  std::byte* target = static_cast<std::byte*>(memory) + block_bytes;
  ssize_t got = 0;
  do {
    got = pread(fd, target, block_bytes, 0);
  } while (got < 0 && errno == EINTR);
  return got >= 0;
}

// What the kernel says about direct reads of this file: a block size; 0: none possible; -1: it does
// not say. STATX_DIOALIGN is of Linux 6.1; the C library's struct may be older, so the two fields
// are taken from their place in the kernel's layout, which never changes.
std::int64_t direct_block_by_statx(int fd) noexcept {
  constexpr unsigned mask_dioalign = 0x2000;
  constexpr std::size_t memory_align_at = 0x98;
  constexpr std::size_t offset_align_at = 0x9c;
  struct statx about = {};
  static_assert(sizeof(about) == 256);
  if (statx(fd, "", AT_EMPTY_PATH, mask_dioalign, &about) != 0) return -1;
  if ((about.stx_mask & mask_dioalign) == 0) return -1;
  std::uint32_t memory_align = 0;
  std::uint32_t offset_align = 0;
  std::memcpy(&memory_align, reinterpret_cast<const char*>(&about) + memory_align_at, 4);
  std::memcpy(&offset_align, reinterpret_cast<const char*>(&about) + offset_align_at, 4);
  if (memory_align == 0 || offset_align == 0) return 0;
  return std::max(memory_align, offset_align);
}

struct DirectProbe {
  std::uint32_t block_bytes = 0;  // 0: not possible
  std::string reason;
};

DirectProbe probe_direct(int fd) {
  const std::int64_t said = direct_block_by_statx(fd);
  if (said == 0) return {0, "the file system reads this file through the page cache only"};
  if (said > 0) {
    const auto block = static_cast<std::uint32_t>(said);
    if (block > probe_bytes_max || !std::has_single_bit(block))
      return {0, fmt::format("direct reads would need blocks of {} bytes", block)};
    if (direct_read_works(fd, block)) return {block, {}};
    return {0, fmt::format("a direct read of one block of {} bytes failed: {}", block,
                           errno_text(errno))};
  }
  for (const std::uint32_t block : {512u, 4096u}) {
    if (direct_read_works(fd, block)) return {block, {}};
  }
  return {0, fmt::format("a direct read of 4096 bytes failed: {}", errno_text(errno))};
}

std::int64_t modified_ns(const struct stat& about) {
  return std::int64_t{about.st_mtim.tv_sec} * 1'000'000'000 + about.st_mtim.tv_nsec;
}

}  // namespace

Result<File> File::open(const std::string& path, DirectMode mode) {
  File file;
  file.path_ = path;
  // O_NONBLOCK, so that a FIFO without a writer is refused below instead of waited for.
  const int fd = open_retrying(path, O_NONBLOCK);
  if (fd < 0) return io_error(path, open_failure(-fd));
  file.fd_ = fd;
  struct stat about = {};
  if (fstat(fd, &about) != 0) return io_error(path, errno_text(errno));
  if (S_ISDIR(about.st_mode)) return io_error(path, "is a directory");
  if (!S_ISREG(about.st_mode)) return io_error(path, "is not a regular file");
  if (fcntl(fd, F_SETFL, 0) != 0) return io_error(path, errno_text(errno));
  file.size_bytes_ = static_cast<std::uint64_t>(about.st_size);
  file.modified_ns_ = modified_ns(about);
  if (mode == DirectMode::off) {
    file.buffered_reason_ = "direct reads are switched off (--direct off)";
    return file;
  }

  const int direct_fd = open_retrying(path, O_DIRECT);
  if (direct_fd >= 0) {
    struct stat again = {};
    const bool same = fstat(direct_fd, &again) == 0 && again.st_dev == about.st_dev &&
                      again.st_ino == about.st_ino;
    DirectProbe probe = probe_direct(direct_fd);
    if (same && probe.block_bytes != 0) {
      file.buffered_fd_ = std::exchange(file.fd_, direct_fd);
      file.direct_ = true;
      file.block_bytes_ = probe.block_bytes;
      return file;
    }
    close(direct_fd);
    if (!same) return io_error(path, "was replaced while it was being opened");
    file.buffered_reason_ = std::move(probe.reason);
  } else if (direct_fd == -EINVAL) {
    file.buffered_reason_ = "the file system refuses O_DIRECT";
  } else {
    return io_error(path, open_failure(-direct_fd));
  }
  if (mode == DirectMode::on) {
    return io_error(path, fmt::format("{}: use --direct auto, or a file on another file system",
                                      file.buffered_reason_));
  }
  log_info(fmt::format("{}: read through the page cache: {}", printable(path, 4096),
                       file.buffered_reason_));
  return file;
}

File::File(File&& other) noexcept { *this = std::move(other); }

File& File::operator=(File&& other) noexcept {
  if (this == &other) return *this;
  std::swap(fd_, other.fd_);
  std::swap(buffered_fd_, other.buffered_fd_);
  path_.swap(other.path_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(modified_ns_, other.modified_ns_);
  std::swap(direct_, other.direct_);
  std::swap(block_bytes_, other.block_bytes_);
  buffered_reason_.swap(other.buffered_reason_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) close(fd_);
  if (buffered_fd_ >= 0) close(buffered_fd_);
}

Status File::check_unchanged() const {
  struct stat about = {};
  if (fstat(fd_, &about) != 0) return io_error(path_, errno_text(errno));
  if (modified_ns(about) == modified_ns_) return {};
  return io_error(
      path_, "was written to while it was in use: what was computed from it cannot be trusted");
}

Result<std::uint64_t> File::current_size() const {
  struct stat about = {};
  if (fstat(fd_, &about) != 0) return io_error(path_, errno_text(errno));
  return static_cast<std::uint64_t>(about.st_size);
}

Status File::read_exactly(std::uint64_t offset, void* target, std::uint64_t bytes) const {
  constexpr std::uint64_t call_bytes_max = 1 * GiB;  // the kernel cuts calls near 2 GiB
  if (offset > INT64_MAX || bytes > INT64_MAX - offset) {
    return io_error(path_, fmt::format("{} bytes at {}: past the largest file", bytes, offset));
  }
  const int fd = direct_ ? buffered_fd_ : fd_;
  std::uint64_t done = 0;
  while (done < bytes) {
    const ssize_t got =
        pread(fd, static_cast<std::byte*>(target) + done, std::min(bytes - done, call_bytes_max),
              static_cast<off_t>(offset + done));
    if (got > 0) {
      done += static_cast<std::uint64_t>(got);
    } else if (got == 0) {
      return io_error(path_, fmt::format("ends at {}, but {} bytes at {} were wanted (it had {} "
                                         "bytes when opened)",
                                         offset + done, bytes, offset, size_bytes_));
    } else if (errno != EINTR) {
      return io_error(path_, fmt::format("reading {} bytes at {}: {}", bytes - done, offset + done,
                                         errno_text(errno)));
    }
  }
  return {};
}

}  // namespace millrace
