#include "runtime/floor/scratch_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "io/errno_text.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr std::uint64_t chunk_bytes = 4 * MiB;

Error failed(const std::string& folder, const std::string& what) {
  return Error{ErrorCode::io, fmt::format("{}: {}", printable(folder, 4096), what)};
}

// Numbers that no drive can shrink (splitmix64).
void fill_chunk(std::vector<std::uint64_t>& words, std::uint64_t seed) {
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::uint64_t z = (seed + i) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    words[i] = z ^ (z >> 27);
  }
}

}  // namespace

ScratchFile::ScratchFile(ScratchFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), bytes_(other.bytes_) {}

ScratchFile::~ScratchFile() {
  if (fd_ >= 0) close(fd_);
}

std::string ScratchFile::path() const { return fmt::format("/proc/self/fd/{}", fd_); }

Status ScratchFile::make(const std::string& folder) {
  std::string name = folder + "/.millrace-floor-XXXXXX";
  fd_ = mkostemp(name.data(), O_CLOEXEC);
  if (fd_ < 0)
    return failed(folder, fmt::format("no scratch file can be made here: {}: name a file that "
                                      "exists, or a folder that you may write to",
                                      errno_text(errno)));
  if (unlink(name.c_str()) != 0) return failed(name, errno_text(errno));
  return {};
}

Status ScratchFile::fill(const std::string& folder, std::uint64_t bytes, double seconds_max,
                         const std::atomic<bool>& cancel, FunctionRef<void(double)> progress) {
  std::vector<std::uint64_t> chunk(chunk_bytes / 8);
  const std::uint64_t start = system_clock().now_ns();
  while (bytes_ < bytes) {
    if (cancel.load()) return Error{ErrorCode::cancelled, "interrupted"};
    const double seconds = static_cast<double>(system_clock().now_ns() - start) * 1e-9;
    if (seconds > seconds_max && bytes_ >= smallest_bytes) break;
    fill_chunk(chunk, bytes_);
    const ssize_t wrote = pwrite(fd_, chunk.data(), chunk_bytes, static_cast<off_t>(bytes_));
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote != static_cast<ssize_t>(chunk_bytes))
      return failed(folder, fmt::format("writing the scratch file stopped at {} of {}: {}",
                                        format_bytes(bytes_), format_bytes(bytes),
                                        wrote < 0 ? errno_text(errno) : "no space left"));
    bytes_ += chunk_bytes;
    // Now and then, so that the end does not wait for all of it.
    if (bytes_ % (64 * MiB) == 0 && fdatasync(fd_) != 0) break;
    progress(static_cast<double>(bytes_) / static_cast<double>(bytes));
  }
  if (fsync(fd_) != 0) return failed(folder, "writing the scratch file: " + errno_text(errno));
  return {};
}

Result<ScratchFile> ScratchFile::create(const std::string& folder, std::uint64_t bytes,
                                        double seconds_max, const std::atomic<bool>& cancel,
                                        FunctionRef<void(double)> progress) {
  if (bytes < smallest_bytes)
    return Error{ErrorCode::usage, fmt::format("--size {}: a scratch file needs at least {}",
                                               format_bytes(bytes), format_bytes(smallest_bytes))};
  struct statvfs about = {};
  if (statvfs(folder.c_str(), &about) != 0) return failed(folder, errno_text(errno));
  const std::uint64_t free = std::uint64_t{about.f_bavail} * about.f_frsize;
  const std::uint64_t wanted = round_down(std::min(bytes, free / 2), chunk_bytes);
  if (wanted < smallest_bytes)
    return failed(folder, fmt::format("no space for a scratch file: {} are free, {} are needed: "
                                      "make room, or name a file that exists",
                                      format_bytes(free), format_bytes(2 * smallest_bytes)));
  ScratchFile scratch;
  MILLRACE_TRY(scratch.make(folder));
  MILLRACE_TRY(scratch.fill(folder, wanted, seconds_max, cancel, progress));
  return scratch;
}

}  // namespace millrace
