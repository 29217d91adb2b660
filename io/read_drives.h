// ReadDrives: what a ReadScheduler with several drives knows about them: which copy of a file lies
// where, who reads which part (ReadDivision), and which drives have failed and are left alone.
// Owned by the scheduler; its thread calls everything but stats().
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "io/read_division.h"
#include "io/read_scheduler.h"

namespace millrace {

class ReadDrives {
 public:
  // A part of a range, and where it is read.
  struct Cut {
    std::uint32_t drive = 0;
    std::uint32_t file = 0;   // of the reader's
    std::uint64_t bytes = 0;  // 0: wait
  };

  // `depth_max`: reads that the reader has room for. The options outlive this.
  ReadDrives(const ReadSchedulerOptions& options, std::uint32_t depth_max);
  // Reads in flight that the options ask for, of all drives.
  static std::uint32_t depth(const ReadSchedulerOptions& options) noexcept;
  // `usage` error: the piece of a drive is no multiple of the block of one of its files.
  static Status check(const ReadSchedulerOptions& options);

  void begin(std::uint64_t now_ns) noexcept;
  bool room() const noexcept { return division_.room(live_); }
  // The next part of a range that is not fully cut.
  Cut next(RangeRead& range) noexcept;
  void sent(const Cut& cut) noexcept { division_.sent(cut.drive, cut.bytes); }
  void ended(const Cut& cut, bool arrived) noexcept;
  // Another try on the same drive.
  void again(const Cut& cut) noexcept;

  bool live(std::uint32_t drive) const noexcept { return (live_ >> drive & 1) != 0; }
  // After a read on `drive` has failed for good: false if no other drive has that file. Else that
  // drive is dropped, if it was not before, and `cut` names another one and its copy.
  bool elsewhere(Cut& cut, std::uint32_t range_file, std::uint64_t offset_bytes, int status);

  std::vector<DriveReads> stats() const;  // any thread

 private:
  using Drives = ReadDivision::Drives;
  struct Counters {
    std::atomic<std::uint64_t> bytes = 0, reads = 0, retries = 0, busy_ns = 0;
  };

  Drives able(std::uint32_t file) const noexcept;
  void drop(const Cut& cut, std::uint32_t other_file, std::uint64_t offset_bytes, int status);

  const ReadSchedulerOptions& options_;
  ReadDivision division_;
  std::vector<Drives> holders_;  // of each file that ranges name
  Drives live_;
  std::array<Counters, ReadDivision::drives_max> counters_;
  mutable std::mutex mutex_;
  std::array<std::string, ReadDivision::drives_max> dropped_;  // why; under mutex_
};

}  // namespace millrace
