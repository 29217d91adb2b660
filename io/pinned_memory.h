// Memory that the drive reads into and kernels stream from: anonymous, in segments of at most 256
// MiB, 2 MiB aligned, in huge pages where the system gives them, mlocked where RLIMIT_MEMLOCK
// allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace millrace {

// Where a block of pinned memory lies. `buffer` is the index of its segment (to be registered under
// that index).
struct PinnedBlock {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
  std::int32_t buffer = -1;
};

struct PinnedMemoryStats {
  std::uint64_t bytes = 0;
  std::uint64_t huge_bytes = 0;  // really backed by huge pages now (from /proc/self/smaps)
  std::uint64_t locked_bytes = 0;
  std::string unlocked_reason;  // "RLIMIT_MEMLOCK is 8.00 MiB, 512 MiB needed: raise it with …";
                                // empty if all locked
};

// Filled at start by one thread, then read-only. Unmapped by the destructor. Move-only.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&&) noexcept;
  PinnedMemory& operator=(PinnedMemory&&) noexcept;
  ~PinnedMemory();

  // Carves `count` blocks of `bytes_each` (rounded up to 4096) into new segments; a block never
  // spans two, and a block larger than a segment gets one of its own. Touches every page. Fails
  // with `memory` when the system refuses.
  Result<std::vector<PinnedBlock>> allocate(std::uint64_t count, std::uint64_t bytes_each);

  std::span<const std::span<std::byte>> segments() const noexcept { return segments_; }
  // Bytes that allocate() would map for these blocks (for the plan).
  static std::uint64_t mapped_bytes(std::uint64_t count, std::uint64_t bytes_each) noexcept;
  PinnedMemoryStats stats() const;

 private:
  std::vector<std::span<std::byte>> segments_;
  std::uint64_t locked_bytes_ = 0;
  std::string unlocked_reason_;
};

}  // namespace millrace
