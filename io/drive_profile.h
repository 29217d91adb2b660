// What a drive was measured to do (`millrace floor`), and where that is kept between runs. The
// planner and the loader take piece size, depth and the floor from it. Plain data; one small JSON
// file per drive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/drive.h"
#include "runtime/base/json.h"
#include "runtime/base/result.h"

namespace millrace {

// Reads of one size at one depth, measured.
struct ReadRate {
  std::uint64_t piece_bytes = 0;
  std::uint32_t depth = 0;  // reads in flight; of mmap: threads
  double bytes_per_second = 0;
  double p50_us = 0, p99_us = 0;                    // from submission to completion
  double user_ms_per_gb = 0, system_ms_per_gb = 0;  // CPU of the whole process; GB = 1e9 bytes
  double device_share = -1;  // of the bytes that the kernel counts as read from a device; -1:
                             // it does not say
  double cpu_ms_per_gb() const noexcept { return user_ms_per_gb + system_ms_per_gb; }
};

// One way of reading, at the best piece size and depth; `refused` says why there is no rate.
struct WayRate {
  std::string name;
  bool direct = false;
  std::string refused;
  ReadRate rate;
};

struct DriveProfile {
  static constexpr std::int64_t version = 1;

  std::string drive_key, drive_name, drive_model, file_system;
  std::int64_t measured_at = 0;  // seconds since 1970, UTC
  bool thorough = false;
  bool direct = false;           // the grid was read with O_DIRECT
  bool page_cache = false;       // what was measured is the page cache, not the drive
  std::uint64_t file_bytes = 0;  // of the file that was read
  std::string grid_way;          // the way of reading that the grid was measured with
  std::vector<ReadRate> grid;    // by piece size, then depth; cells not measured are left out
  std::vector<WayRate> ways;
  // How far slices of one cell differ (0..1, half the range): cells closer than this are equal.
  double noise = 0;
  // The cell that is best for large reads, and its rate in the slowest, the middle and the fastest
  // of the repeats.
  std::uint64_t piece_bytes = 0;
  std::uint32_t queue_depth = 0;
  double bytes_per_second = 0, slowest_bytes_per_second = 0, fastest_bytes_per_second = 0;
};

Json profile_json(const DriveProfile& profile);
// `format` error that says what is wrong: not JSON, another version, a number out of bounds.
Result<DriveProfile> parse_profile(const std::string& text);

// The file of a drive in the folder of profiles.
std::string profile_path(const std::string& folder, const std::string& drive_key);
// Makes the folder (0700); whole or not at all. `io`; `format`: parse_profile() would refuse it.
Status save_profile(const std::string& folder, const DriveProfile& profile);
// Nothing if the drive was never measured. A file that is damaged, of another version, of another
// drive, of the page cache or of a day to come is ignored with a warning that names it. An empty
// folder name: nothing.
std::optional<DriveProfile> load_profile(const std::string& folder, const Drive& drive);

// What the drive gives at this piece size and depth: the rate of the nearest cell that was
// measured, the middle of the repeats for the cell to use.
double profile_rate(const DriveProfile& profile, std::uint64_t piece_bytes, std::uint32_t depth);

// The cell to use for reads of `read_bytes`: pieces of less than twice that size (of the smallest
// measured, if all are larger). Of those within `tolerance` of the fastest the one with the fewest
// bytes in flight, counting at least 4 reads (urgent reads wait behind fewer others), pieces of 1
// MiB and more first (below, CPU time per GB grows). Index into `grid`; not empty.
std::size_t best_cell(const std::vector<ReadRate>& grid, double tolerance,
                      std::uint64_t read_bytes = UINT64_MAX);

}  // namespace millrace
