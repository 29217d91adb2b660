#include "runtime/direct_read.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "io/alignment.h"
#include "runtime/base/units.h"

namespace millrace {

void ReadBuffer::Free::operator()(std::byte* memory) const noexcept { std::free(memory); }

Result<std::byte*> ReadBuffer::room(std::uint64_t bytes) {
  if (bytes <= bytes_) return memory_.get();
  memory_.reset();
  bytes_ = 0;
  const std::uint64_t rounded = round_up(bytes, alignment);
  memory_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (memory_ == nullptr)
    return Error{ErrorCode::memory,
                 fmt::format("no memory for a buffer of {}: raise the limit on it (`ulimit -v`, "
                             "memory.max of the cgroup)",
                             format_bytes(rounded))};
  bytes_ = rounded;
  madvise(memory_.get(), bytes_, MADV_HUGEPAGE);  // small pages do too
  return memory_.get();
}

Result<const std::byte*> read_stretch(const File& file, std::uint64_t offset, std::uint64_t bytes,
                                      ReadBuffer& buffer) {
  const BlockWindow window = block_window(offset, bytes, file.block_bytes());
  MILLRACE_ASSIGN(std::byte* const target, buffer.room(window.bytes));
  std::uint64_t done = 0;
  while (done < window.needed_bytes) {
    const ssize_t got = pread(file.fd(), target + done, window.bytes - done,
                              static_cast<off_t>(window.offset_bytes + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      return Error{
          ErrorCode::io,
          fmt::format("{}: {} bytes at offset {}: {}", file.path(), bytes, offset,
                      got < 0 ? std::strerror(errno) : "the file ends before it (truncated?)")};
    done += static_cast<std::uint64_t>(got);
  }
  return target + (offset - window.offset_bytes);
}

}  // namespace millrace
