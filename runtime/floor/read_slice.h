// One slice of a measurement: reads of one size, a given number in flight, for a given time. What
// the slices of one cell did is added up in a tally.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/drive_profile.h"
#include "io/file.h"
#include "io/reader.h"
#include "runtime/base/result.h"
#include "runtime/floor/read_memory.h"

namespace millrace {

// A way of reading that is compared with others.
struct ReadWay {
  const char* name;
  ReaderKind kind = ReaderKind::uring;
  bool registered = false;
  bool huge = false;
  RingPolling polling = RingPolling::none;
  bool direct = true;
  bool mapped = false;  // pages of a mapping are touched instead
};

// CPU time and device bytes of this process so far.
struct ProcessUse {
  double user_ms = 0, system_ms = 0;
  std::uint64_t device_bytes = 0;
  static ProcessUse now() noexcept;
};

// What slices of one cell did together.
struct ReadTally {
  std::uint64_t bytes = 0;
  std::uint64_t ns = 0;
  double user_ms = 0, system_ms = 0;
  std::uint64_t device_bytes = 0;
  std::vector<float> latencies_us;
  std::vector<double> rates;  // bytes per second, of each slice
  ReadRate rate(std::uint64_t piece_bytes, std::uint32_t depth) const;
};

// What is read, and into what. The buffered file is for ways without O_DIRECT.
struct ReadTarget {
  const File* direct = nullptr;
  const File* buffered = nullptr;
  std::span<std::byte> huge, small;
};

struct SliceRequest {
  std::uint64_t piece_bytes = 0;
  std::uint32_t depth = 0;
  std::uint64_t ns_max = 0;
  std::uint64_t first = 0;  // which piece of the file comes first; another each time
};

// Adds one slice to the tally. Pieces are spread over the file; a file that is read through the
// page cache is dropped from it first and read once at most. Returns why the system refuses this
// way, empty if it did not. `io` error when the file cannot be read at all.
Result<std::string> measure_slice(const ReadWay& way, const ReadTarget& target,
                                  const SliceRequest& request, ReadTally& tally);

}  // namespace millrace
