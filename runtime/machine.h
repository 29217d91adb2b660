// What this machine offers: cores and memory. Read once at start; plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace millrace {

struct Machine {
  unsigned cores = 1;  // physical cores that this process may use (of the fastest kind)
  std::uint64_t memory_available = 0;  // what we may still take: the smaller of the two below
  std::uint64_t system_available = 0;  // MemAvailable
  std::uint64_t cgroup_available =
      0;  // the tightest cgroup limit minus what cannot be reclaimed; 0: no limit
  std::string memory_source;  // "MemAvailable" or "cgroup limit of …" for messages
};

// Reads /proc and /sys under `root` (empty: the real ones; tests give a folder).
Machine read_machine(const std::string& root = "");

// `memory` error that names what was to be done and both numbers, if `bytes` and some room for the
// program itself are not there. For what takes memory outside of a plan: a limit that is met ends
// the process without a word.
Status require_memory(std::string_view what, std::uint64_t bytes);

// Peak resident set of this process so far, in bytes.
std::uint64_t peak_rss_bytes() noexcept;

// Bytes that the kernel counts as read from devices by this process (/proc/self/io, read_bytes); 0
// if unknown.
std::uint64_t kernel_read_bytes() noexcept;

}  // namespace millrace
