// The read floor of a drive: how fast it delivers pieces of each size at each depth, and which way
// of reading costs the least. What `millrace floor` does; engine and planner use the profile that
// comes out.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "io/drive_profile.h"
#include "runtime/base/result.h"
#include "runtime/progress.h"

namespace millrace {

struct FloorOptions {
  std::string path;       // a file to read, or a folder in which a scratch file is made
  double seconds = 0;     // in all, at most floor_seconds_max; 0: 20, thorough: 240
  bool thorough = false;  // all piece sizes and depths, instead of about half of them
  std::uint64_t scratch_bytes = std::uint64_t{1} << 30;  // of the scratch file, if one is made
};
inline constexpr double floor_seconds_max = 86'400;
// Of a smaller file nothing can be told about the drive: it is measured, but not kept.
inline constexpr std::uint64_t floor_kept_bytes_min = std::uint64_t{64} << 20;

struct FloorResult {
  DriveProfile profile;
  std::vector<std::string> warnings;  // what the figures are not, and why
};

// Measures cells in shuffled rounds, so that a drive whose speed drifts is unfair to none. Errors:
// `usage` (empty file, times out of bounds), `io` (not readable, no space, a read failed),
// `memory`, `cancelled`. One thread; nothing else of the process should be busy.
Result<FloorResult> measure_floor(const FloorOptions& options, ProgressLine& progress,
                                  const std::atomic<bool>& cancel);

// The profile as a table for people; `warnings` below it.
std::string floor_table(const FloorResult& result);
// GB/s by piece size and depth, as an SVG heat map.
std::string floor_svg(const DriveProfile& profile);

}  // namespace millrace
