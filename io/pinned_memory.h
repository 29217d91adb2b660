// Memory that the drive reads into and kernels stream from: anonymous, in segments of at most 256
// MiB, 2 MiB aligned, in huge pages where the system gives them, mlocked where RLIMIT_MEMLOCK
// allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/limits.h"
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
  std::uint64_t bytes = 0;       // of the segments that are not given back
  std::uint64_t huge_bytes = 0;  // really backed by huge pages now (from /proc/self/smaps)
  std::uint64_t locked_bytes = 0;
  std::string unlocked_reason;  // "RLIMIT_MEMLOCK is 8.00 MiB, 512 MiB needed: raise it with …";
                                // empty if all locked
};

// Filled at start by one thread, then read-only but for give_back() and take_again(), which one
// thread at a time may call, and not beside stats(). Unmapped by the destructor. Move-only.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&&) noexcept;
  PinnedMemory& operator=(PinnedMemory&&) noexcept;
  ~PinnedMemory();

  // Carves `count` blocks of `bytes_each` (rounded up to 4096) into new segments; a block never
  // spans two, and a block larger than a segment gets one of its own. Touches every page, by
  // several threads. Fails with `memory` when the system refuses.
  Result<std::vector<PinnedBlock>> allocate(
      std::uint64_t count, std::uint64_t bytes_each,
      std::uint64_t segment_bytes_max = limits::segment_bytes_max);

  // Gives the memory of a segment back to the system. Its addresses stay ours, but nobody may touch
  // them. No read into it is in flight and no reader has it registered (its pages would stay).
  // `memory` error if the system refuses: it is as before.
  Status give_back(std::uint32_t segment);
  // Takes memory for a segment that was given back, zeroes, as allocate() did. `memory` error if
  // the system refuses: it stays given back.
  Status take_again(std::uint32_t segment);

  std::span<const std::span<std::byte>> segments() const noexcept { return segments_; }
  // Bytes that allocate() would map for these blocks (for the plan).
  static std::uint64_t mapped_bytes(
      std::uint64_t count, std::uint64_t bytes_each,
      std::uint64_t segment_bytes_max = limits::segment_bytes_max) noexcept;
  PinnedMemoryStats stats() const;

 private:
  struct State {
    bool locked = false;
    bool given_back = false;
  };
  void lock(std::uint32_t segment);

  std::vector<std::span<std::byte>> segments_;
  std::vector<State> states_;  // by segment
  std::uint64_t locked_bytes_ = 0;
  std::string unlocked_reason_;
};

}  // namespace millrace
