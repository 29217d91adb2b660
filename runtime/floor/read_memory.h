// Memory to read into, in the kinds that are compared: as the engine has it (huge pages, locked if
// allowed), in small pages, or huge but for its last page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "io/pinned_memory.h"
#include "runtime/base/result.h"

namespace millrace {

enum class Pages : std::uint8_t { huge, small, huge_but_one };

// Unmapped by the destructor. Move-only; one thread.
class ReadMemory {
 public:
  // `bytes`: at most limits::segment_bytes_max. Fails with `memory` when the system refuses.
  static Result<ReadMemory> create(std::uint64_t bytes, Pages pages);
  ReadMemory(ReadMemory&& other) noexcept;
  ReadMemory& operator=(ReadMemory&&) = delete;
  ReadMemory(const ReadMemory&) = delete;
  ~ReadMemory();

  // All of it, to be registered as one buffer; may be a little more than asked for.
  std::span<std::byte> bytes() const noexcept { return bytes_; }
  // How much is really backed by huge pages; of Pages::huge only.
  std::uint64_t huge_bytes() const { return pinned_.stats().huge_bytes; }

 private:
  ReadMemory() = default;
  PinnedMemory pinned_;
  void* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::span<std::byte> bytes_;
};

}  // namespace millrace
