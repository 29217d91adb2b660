#include "io/read_drives.h"

#include <fmt/format.h>

#include <algorithm>

#include "io/errno_text.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"

namespace millrace {

namespace {

std::uint32_t largest_block(const ReadSchedulerOptions& options) noexcept {
  std::uint32_t largest = 1;
  for (const File* file : options.reader.files) largest = std::max(largest, file->block_bytes());
  return largest;
}

// With fewer reads in the reader than asked for, each drive gets its share of them.
ReadDivision make_division(const ReadSchedulerOptions& options, std::uint32_t depth_max) {
  std::vector<ReadDivision::Drive> drives;
  const auto count = static_cast<std::uint32_t>(options.drives.size());
  const bool fits = ReadDrives::depth(options) <= depth_max;
  for (const ReadDrive& drive : options.drives) {
    const std::uint32_t depth =
        fits ? drive.depth : std::min(drive.depth, std::max(1U, depth_max / count));
    drives.push_back({depth, drive.piece_bytes, drive.bytes_per_second});
  }
  return {drives, largest_block(options)};
}

}  // namespace

ReadDrives::ReadDrives(const ReadSchedulerOptions& options, std::uint32_t depth_max)
    : options_(options),
      division_(make_division(options, depth_max)),
      holders_(options.drives.front().files.size(), 0),
      live_((Drives{1} << options.drives.size()) - 1) {
  MILLRACE_CHECK(depth_max >= options.drives.size());
  for (std::size_t drive = 0; drive < options.drives.size(); ++drive) {
    const std::vector<std::uint32_t>& files = options.drives[drive].files;
    MILLRACE_CHECK(files.size() == holders_.size());
    for (std::size_t file = 0; file < files.size(); ++file) {
      if (files[file] == ReadDrive::no_file) continue;
      MILLRACE_CHECK(files[file] < options.reader.files.size());
      holders_[file] |= Drives{1} << drive;
    }
  }
  for (const Drives holders : holders_) MILLRACE_CHECK(holders != 0);
}

std::uint32_t ReadDrives::depth(const ReadSchedulerOptions& options) noexcept {
  std::uint32_t sum = 0;
  for (const ReadDrive& drive : options.drives) sum += drive.depth;
  return sum;
}

Status ReadDrives::check(const ReadSchedulerOptions& options) {
  MILLRACE_CHECK(options.drives.size() <= ReadDivision::drives_max);
  const std::uint32_t block = largest_block(options);
  for (const ReadDrive& drive : options.drives) {
    if (drive.piece_bytes > 0 && drive.piece_bytes % block == 0) continue;
    return Error{ErrorCode::usage, fmt::format("piece size {}: must be a multiple of {}, the "
                                               "largest block of the drives",
                                               drive.piece_bytes, block)};
  }
  return {};
}

void ReadDrives::begin(std::uint64_t now_ns) noexcept {
  division_.begin(now_ns);
  for (std::uint32_t drive = 0; drive < division_.count(); ++drive)
    counters_[drive].busy_ns.store(division_.busy_ns(drive), std::memory_order_relaxed);
}

// Those that are asked for a file. A file that has no other copy is tried where it is.
ReadDrives::Drives ReadDrives::able(std::uint32_t file) const noexcept {
  const Drives live = holders_[file] & live_;
  return live != 0 ? live : holders_[file];
}

// Ranges of the trunk are needed all together, so that they are always divided.
ReadDrives::Cut ReadDrives::next(RangeRead& range) noexcept {
  const std::uint64_t rest = range.bytes - range.next_piece_bytes;
  const bool begun = range.next_piece_bytes > 0;
  const bool whole = range.elsewhere || !(options_.stripe || range.priority == ReadPriority::trunk);
  const Drives all = able(range.file);
  Drives among = all;
  if (whole && begun) among = all & range.drives;  // goes on where it began
  else if (range.elsewhere) among = all & ~range.drives;
  if (among == 0) among = all;
  const ReadDivision::Part part =
      whole ? division_.whole(rest, among) : division_.divided(rest, among);
  if (part.bytes == 0) return {};
  const Drives bit = Drives{1} << part.drive;
  range.drives = static_cast<std::uint8_t>(whole || !begun ? bit : range.drives | bit);
  range.source_file = options_.drives[part.drive].files[range.file];
  return {part.drive, range.source_file, part.bytes};
}

void ReadDrives::ended(const Cut& cut, bool arrived) noexcept {
  division_.ended(cut.drive, cut.bytes, arrived);
  Counters& counters = counters_[cut.drive];
  counters.reads.fetch_add(1, std::memory_order_relaxed);
  if (arrived) counters.bytes.fetch_add(cut.bytes, std::memory_order_relaxed);
}

void ReadDrives::again(const Cut& cut) noexcept {
  ended(cut, false);
  sent(cut);
  counters_[cut.drive].retries.fetch_add(1, std::memory_order_relaxed);
}

bool ReadDrives::elsewhere(Cut& cut, std::uint32_t range_file, std::uint64_t offset_bytes,
                           int status) {
  const Drives others = holders_[range_file] & live_ & ~(Drives{1} << cut.drive);
  if (others == 0) return false;
  const std::uint32_t drive = division_.soonest(cut.bytes, others);
  const std::uint32_t file = options_.drives[drive].files[range_file];
  if (live(cut.drive)) drop(cut, file, offset_bytes, status);
  cut.drive = drive;
  cut.file = file;
  return true;
}

void ReadDrives::drop(const Cut& cut, std::uint32_t other_file, std::uint64_t offset_bytes,
                      int status) {
  live_ &= ~(Drives{1} << cut.drive);
  const File& file = *options_.reader.files[cut.file];
  std::string reason =
      fmt::format("{}: offset {}: {}", file.path(), offset_bytes, errno_text(status));
  const Result<std::uint64_t> now = file.current_size();
  if (now && now.value() < file.size_bytes())
    reason += fmt::format("; the file was truncated from {} to {} bytes while in use",
                          file.size_bytes(), now.value());
  log_warning(fmt::format("{}: this drive is read no more, {} stands in", reason,
                          options_.reader.files[other_file]->path()));
  const std::lock_guard lock(mutex_);
  dropped_[cut.drive] = std::move(reason);
}

std::vector<DriveReads> ReadDrives::stats() const {
  std::vector<DriveReads> list;
  const std::lock_guard lock(mutex_);
  for (std::uint32_t drive = 0; drive < division_.count(); ++drive) {
    const Counters& counters = counters_[drive];
    list.push_back({.name = options_.drives[drive].name,
                    .depth = division_.depth(drive),
                    .piece_bytes = options_.drives[drive].piece_bytes,
                    .bytes = counters.bytes.load(std::memory_order_relaxed),
                    .reads = counters.reads.load(std::memory_order_relaxed),
                    .retries = counters.retries.load(std::memory_order_relaxed),
                    .busy_ns = counters.busy_ns.load(std::memory_order_relaxed),
                    .dropped = dropped_[drive]});
  }
  return list;
}

}  // namespace millrace
