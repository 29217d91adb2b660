// ReadScheduler: the one thread that owns the Reader. Takes ranges of any length from any thread,
// cuts them into pieces, keeps the drive's queue full in order of priority, retries failed pieces a
// bounded number of times, and counts what the drive did. With several drives that hold the same
// files it divides the reads between them and goes on without one that fails. Owned by the engine;
// outlives everything that submits to it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "io/reader.h"
#include "runtime/base/clock.h"
#include "runtime/base/result.h"

namespace millrace {

// Lower value first. A piece that is already in flight is not recalled. Speculative pieces go out
// only while no other piece is in flight or queued, and few at a time: what is asked for meanwhile
// waits for no more than these.
enum class ReadPriority : std::uint8_t { trunk, demand_first, demand_rest, speculative };
inline constexpr std::size_t read_priority_count = 4;

// One range, owned by the requester, in place and unmoved until `done` has run. Blocks: offset,
// bytes and target are multiples of the file's block_bytes().
struct RangeRead {
  std::uint32_t file = 0;
  std::uint64_t offset_bytes = 0;
  std::uint64_t bytes = 0;  // rounded to blocks; may end past the end of the file in its last block
  std::uint64_t needed_bytes = 0;  // from offset_bytes on; must arrive
  std::byte* target = nullptr;
  std::int32_t buffer = -1;  // registered buffer that holds all of target, or -1
  ReadPriority priority = ReadPriority::demand_first;
  // What came the last time was wrong: to be read on other drives than those, if there are any.
  bool elsewhere = false;
  // Runs once in the scheduler's thread after the last piece (no lock held): 0, an errno, or -1 for
  // an unexpected end of file. May call submit() of the scheduler; must not block or wait for other
  // reads.
  void (*done)(RangeRead& range, int errno_or_zero) = nullptr;
  void* owner = nullptr;

  // The scheduler's.
  RangeRead* next = nullptr;
  std::uint64_t next_piece_bytes = 0;  // how far pieces have been cut
  std::uint32_t pieces_open = 0;
  int status = 0;
  // Which of the reader's files its last piece came from; after a failure, the one that failed.
  std::uint32_t source_file = 0;
  std::uint8_t drives = 0;  // bits of those that read a part of it
};

// Counters since start; bytes as asked from the device, rounding included.
struct ReadStats {
  std::uint64_t bytes = 0;
  std::uint64_t bytes_by_priority[read_priority_count] = {};
  std::uint64_t reads = 0;  // pieces completed
  std::uint64_t retries = 0;
  std::uint64_t busy_ns = 0;       // time with at least one piece in flight
  std::uint64_t owner_cpu_ns = 0;  // CPU time of the owner thread
};

// One of several drives that hold copies of the same files.
struct ReadDrive {
  static constexpr std::uint32_t no_file = UINT32_MAX;
  std::string name;  // for the report
  // Its copy of each file that ranges name: an index into ReaderOptions::files, or no_file. Some
  // drive has each file. The copies are equal; ranges are multiples of all their blocks.
  std::vector<std::uint32_t> files;
  std::uint32_t depth = 16;       // reads in flight on it
  std::uint64_t piece_bytes = 0;  // a multiple of every file's block
  double bytes_per_second = 0;    // to begin with, before its reads show it; 0: not known
};

// What a drive did since the start.
struct DriveReads {
  std::string name;
  std::uint32_t depth = 0;
  std::uint64_t piece_bytes = 0;
  std::uint64_t bytes = 0;  // arrived
  std::uint64_t reads = 0, retries = 0;
  std::uint64_t busy_ns = 0;  // time with at least one piece in flight on it
  std::string dropped;        // why it is read no more; empty: it is
};

struct ReadSchedulerOptions {
  ReaderOptions reader;  // its depth counts without `drives` only
  // A multiple of every file's block; ranges are cut into equal pieces of about this size.
  std::uint64_t piece_bytes = std::uint64_t{1} << 20;
  std::uint32_t speculative_pieces = 2;  // in flight at a time, at least 1
  // Empty: one drive, which has all files, at the reader's depth.
  std::vector<ReadDrive> drives;
  // Experts' ranges are divided between the drives too, not only the trunk's; else each goes to the
  // drive that would have it first.
  bool stripe = false;
  Clock* clock = nullptr;  // null: the system's
};

class ReadScheduler {
 public:
  // Starts the owner thread and makes the reader in it; fails as make_reader does.
  static Result<std::unique_ptr<ReadScheduler>> start(const ReadSchedulerOptions& options);
  // As start(), with a reader made by the caller's function (tests: a fake). Called in the owner
  // thread.
  using ReaderFactory = Result<MadeReader> (*)(const ReaderOptions& options, void* context);
  static Result<std::unique_ptr<ReadScheduler>> start_with(const ReadSchedulerOptions& options,
                                                           ReaderFactory factory, void* context);
  // Waits for the reads in flight, fails the queued ones with ECANCELED, joins the thread.
  virtual ~ReadScheduler() = default;

  // Queues the ranges in the given order behind those of equal priority. Any thread; short lock, no
  // allocation.
  virtual void submit(std::span<RangeRead* const> ranges) noexcept = 0;
  // Moves a range that is still queued to another priority; no effect once all its pieces are in
  // flight.
  virtual void reprioritize(RangeRead& range, ReadPriority priority) noexcept = 0;
  // Takes a range back whose pieces have not been cut at all: true, and done never runs. False: too
  // late.
  virtual bool cancel(RangeRead& range) noexcept = 0;

  // Has the reader take a buffer out of the registered ones, so that its memory can be given back,
  // or register it again, and waits for that. No read into it is queued or in flight until this has
  // returned. Returns whether it is registered then. Any thread but the owner.
  virtual bool register_buffer(std::uint32_t buffer, bool wanted) noexcept = 0;

  virtual ReadStats stats() const noexcept = 0;        // any thread
  virtual std::vector<DriveReads> drives() const = 0;  // one or more; any thread
  virtual const char* reader_name() const noexcept = 0;
  virtual std::uint32_t depth() const noexcept = 0;
  virtual std::uint64_t piece_bytes() const noexcept = 0;
  virtual std::uint32_t registered_buffers() const noexcept = 0;
  virtual const std::string& fallback_reason() const noexcept = 0;
  virtual const std::string& buffers_reason() const noexcept = 0;
};

}  // namespace millrace
