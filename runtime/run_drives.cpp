#include "runtime/run_drives.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "io/file.h"
#include "runtime/base/check.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"
#include "runtime/floor/drive_now.h"

namespace millrace {

namespace {

// A profile is measured with the cores idle, and a drive of short ways gives all to one reader
// there. In a run the thread that owns the ring waits for its turn beside the kernels; what is in
// flight meanwhile keeps the drive busy (io/README.md).
constexpr std::uint32_t depth_in_runs_min = 8;

// The earlier drive that this one is; null: none.
const RunDrive* same_drive(std::span<const RunDrive> drives, std::size_t index) {
  const auto earlier = drives.first(index);
  const auto found = std::find_if(earlier.begin(), earlier.end(), [&](const RunDrive& other) {
    return other.drive.key == drives[index].drive.key;
  });
  return found == earlier.end() ? nullptr : &*found;
}

}  // namespace

std::uint32_t expert_file(std::span<const std::uint32_t> files, bool pool) {
  if (pool && files.back() != ReadDrive::no_file) return files.back();
  const auto first = std::find_if(files.begin(), files.end(),
                                  [](std::uint32_t file) { return file != ReadDrive::no_file; });
  MILLRACE_CHECK(first != files.end());  // a drive without files is none
  return *first;
}

Status look_up(RunDrive& drive, const std::string& file, const std::string& profile_folder) {
  MILLRACE_ASSIGN(drive.drive, find_drive(file));
  drive.profile = load_profile(profile_folder, drive.drive);
  return {};
}

void choose_pieces(RunDrive& drive, const ReadShape& shape) {
  drive.piece_bytes = limits::piece_bytes_default;
  drive.depth = limits::queue_depth_default;
  if (drive.profile && !drive.profile->grid.empty()) {
    const std::uint64_t reads = std::max<std::uint64_t>(1, shape.read_bytes);
    const ReadRate& best =
        drive.profile->grid[best_cell(drive.profile->grid, drive.profile->noise, reads)];
    drive.piece_bytes = best.piece_bytes;
    drive.depth = std::clamp(best.depth, depth_in_runs_min, limits::queue_depth_max);
  }
  if (shape.depth != 0) drive.depth = shape.depth;
  if (shape.piece_bytes != 0) drive.piece_bytes = shape.piece_bytes;
  // A profile may have been measured on a file system with smaller blocks.
  drive.piece_bytes = round_up(drive.piece_bytes, shape.block_bytes);
}

double ask_now(RunDrive& drive, const std::string& file, std::uint64_t read_bytes) {
  const auto opened = File::open(file, DirectMode::automatic);
  if (!opened) return 0;
  choose_pieces(drive, {.read_bytes = read_bytes,
                        .block_bytes = std::max<std::uint64_t>(1, opened->block_bytes())});
  return drive_now(*opened, drive.piece_bytes, drive.depth).bytes_per_second();
}

void note_shared(std::span<RunDrive> drives) {
  for (std::size_t i = 1; i < drives.size(); ++i) {
    const RunDrive* const same = same_drive(drives, i);
    if (same == nullptr) continue;
    drives[i].note = fmt::format("--mirror {}: on the same drive ({}) as {}: nothing is gained",
                                 printable(drives[i].path, 4096), drives[i].drive.name,
                                 printable(same->path, 4096));
    log_warning(drives[i].note);
  }
}

DriveRange drive_range(std::span<const RunDrive> drives, std::uint64_t read_bytes) {
  DriveRange all{.measured = true};
  for (std::size_t i = 0; i < drives.size(); ++i) {
    if (same_drive(drives, i) != nullptr) continue;
    const DriveRange one = drive_range(drives[i].profile, read_bytes);
    all.low += one.low;
    all.middle += one.middle;
    all.high += one.high;
    all.measured = all.measured && one.measured;
    all.latency_seconds = std::max(all.latency_seconds, one.latency_seconds);
  }
  return all;
}

double profiled_rate(std::span<const RunDrive> drives, bool direct) {
  double all = 0;
  for (std::size_t i = 0; i < drives.size(); ++i) {
    if (same_drive(drives, i) != nullptr) continue;
    const auto& profile = drives[i].profile;
    if (!profile || profile->direct != direct) return 0;
    all += profile_rate(*profile, drives[i].piece_bytes, drives[i].depth);
  }
  return all;
}

std::string pace_drive(std::span<const RunDrive> drives, bool direct) {
  std::string name = direct ? "direct" : "page cache";
  for (const RunDrive& drive : drives) name += " " + drive.drive.key;
  return name;
}

std::vector<ReadDrive> read_drives(std::span<const RunDrive> drives) {
  std::vector<ReadDrive> list;
  const auto count = static_cast<std::uint32_t>(drives.size());
  for (const RunDrive& drive : drives)
    list.push_back(
        {.name = drive.path,
         .files = drive.files,
         .depth = std::min(drive.depth, limits::queue_depth_max / count),
         .piece_bytes = drive.piece_bytes,
         .bytes_per_second =
             drive.profile ? profile_rate(*drive.profile, drive.piece_bytes, drive.depth) : 0});
  return list;
}

}  // namespace millrace
