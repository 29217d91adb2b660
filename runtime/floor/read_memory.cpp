#include "runtime/floor/read_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "io/errno_text.h"
#include "runtime/base/units.h"

namespace millrace {

ReadMemory::ReadMemory(ReadMemory&& other) noexcept
    : pinned_(std::move(other.pinned_)),
      mapped_(std::exchange(other.mapped_, nullptr)),
      mapped_bytes_(other.mapped_bytes_),
      bytes_(other.bytes_) {}

ReadMemory::~ReadMemory() {
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
}

Result<ReadMemory> ReadMemory::create(std::uint64_t bytes, Pages pages) {
  constexpr std::uint64_t page = 4096, huge_page = 2 * MiB;
  ReadMemory memory;
  if (pages == Pages::huge) {
    MILLRACE_ASSIGN(const auto blocks, memory.pinned_.allocate(1, bytes));
    memory.bytes_ = memory.pinned_.segments().front();
    return memory;
  }
  const std::uint64_t whole = bytes + (pages == Pages::huge_but_one ? page : 0);
  memory.mapped_bytes_ = whole + huge_page;
  void* room = mmap(nullptr, memory.mapped_bytes_, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED)
    return Error{ErrorCode::memory, fmt::format("no memory to read into: {}: {}",
                                                format_bytes(whole), errno_text(errno))};
  memory.mapped_ = room;
  auto* start =
      reinterpret_cast<std::byte*>(round_up(reinterpret_cast<std::uintptr_t>(room), huge_page));
  madvise(start, whole, pages == Pages::small ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  if (pages == Pages::huge_but_one) madvise(start + whole - page, page, MADV_NOHUGEPAGE);
  std::memset(start, 0, whole);
  memory.bytes_ = {start, whole};
  return memory;
}

}  // namespace millrace
