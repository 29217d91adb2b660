// What the result of one system call means for a Read. Both readers use it, so that short reads,
// interruptions and the end of a file are treated alike.
#pragma once

#include <cerrno>
#include <cstdint>
#include <limits>

#include "io/reader.h"

namespace millrace {

// More must be asked for, from arrived_bytes on.
inline constexpr int read_goes_on = std::numeric_limits<int>::min();
// EINTR and EAGAIN in a row before they count as failures.
inline constexpr unsigned read_stalls_max = 64;

// `result`: bytes that came, or a negative errno. Returns read_goes_on or the read's final status
// (0, an errno, -1). `stalls` starts at 0 and is kept between calls.
inline int advance_read(Read& read, unsigned& stalls, std::uint32_t block_bytes,
                        std::int64_t result) noexcept {
  if (result < 0) {
    const int code = static_cast<int>(-result);
    const bool passing = code == EINTR || code == EAGAIN;
    return passing && ++stalls <= read_stalls_max ? read_goes_on : code;
  }
  if (result == 0) return read.arrived_bytes >= read.needed_bytes ? 0 : -1;
  stalls = 0;
  const auto arrived = static_cast<std::uint32_t>(read.arrived_bytes + result);
  if (arrived >= read.needed_bytes) {
    read.arrived_bytes = arrived;
    return 0;
  }
  // The next try starts at a block again. One that brings no whole block met the end of the file.
  const std::uint32_t whole = arrived / block_bytes * block_bytes;
  if (whole <= read.arrived_bytes) return -1;
  read.arrived_bytes = whole;
  return read_goes_on;
}

}  // namespace millrace
