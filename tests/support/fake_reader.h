// A drive that exists only in memory and the Reader on it: completions come in an order drawn from
// a seed, after delays counted in steps of poll() (never in time), in short pieces if asked, with
// faults where the test wants them. Everything that happens follows from the seed and the calls.
//
//   FakeDrive drive(seed);
//   drive.add_file(bytes);
//   ReadScheduler::start_with(options, &FakeDrive::make_reader, &drive);
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "io/reader.h"
#include "runtime/base/clock.h"

namespace millrace::testing {

// What a reader was asked for, in order of submission.
struct FakeSubmission {
  std::uint32_t file = 0;
  std::uint64_t offset_bytes = 0;
  std::uint32_t bytes = 0;
};

// Owned by the test, outlives its readers. Any thread, but the settings that are plain members:
// those are set before the first reader is made.
class FakeDrive {
 public:
  explicit FakeDrive(std::uint64_t seed) : seed_(seed) {}

  std::uint32_t block_bytes = 1;      // short reads end at multiples of it
  std::uint32_t delay_steps_max = 4;  // each part of a read takes 1 to this many steps
  bool short_reads = false;           // a read may arrive in several parts
  unsigned faults_per_1000 = 0;       // reads that fail with EIO, drawn from the seed

  std::uint32_t add_file(std::vector<std::byte> contents);  // returns its index
  void truncate(std::uint32_t file, std::uint64_t bytes);
  // The next `times` reads that cover this byte fail with `code`.
  void fail(std::uint32_t file, std::uint64_t offset_bytes, int code, unsigned times);
  // Once `reads` more of this file have come, all others fail with `code`.
  void break_file(std::uint32_t file, int code, unsigned reads = 0);
  // Reads of this file take exactly so many steps each, one after the other, from now on or once
  // `reads` more of it have come: files of different drives.
  void set_pace(std::uint32_t file, std::uint32_t steps, unsigned reads = 0);
  // Counts a millisecond for each step.
  Clock& clock() noexcept { return clock_; }

  // While held, nothing completes (waiting polls wait for release() or wake()).
  void hold();
  void release();
  // Blocks until so many reads have been submitted in all.
  void wait_for_submissions(std::size_t count);
  std::vector<FakeSubmission> submissions() const;

  // A ReadScheduler::ReaderFactory; the context is the drive. Of the options only the depth counts.
  static Result<MadeReader> make_reader(const ReaderOptions& options, void* drive);

 private:
  friend class FakeReader;
  struct Fault {
    std::uint32_t file;
    std::uint64_t offset_bytes;
    int code;
    unsigned times;
  };

  struct FileState {
    int broken_code = 0;  // once breaks_after reads have come; 0: never
    unsigned breaks_after = 0;
    std::uint32_t pace = 0, next_pace = 0;  // steps; 0: drawn
    unsigned paced_after = 0;
    unsigned served = 0;
    std::uint64_t busy_until = 0;  // step
  };
  class StepClock final : public Clock {
   public:
    explicit StepClock(FakeDrive& drive) : drive_(drive) {}
    std::uint64_t now_ns() noexcept override;

   private:
    FakeDrive& drive_;
  };

  // Steps that a read of this file takes which is submitted now.
  std::uint32_t delay(std::uint32_t file) noexcept;
  // Bytes that came, or a negative errno, for a read of `bytes` at `offset_bytes`.
  std::int64_t serve(std::uint32_t file, std::uint64_t offset_bytes, std::byte* target,
                     std::uint32_t bytes);
  std::uint64_t random() noexcept;  // under mutex_

  const std::uint64_t seed_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<std::byte>> files_;
  std::vector<FileState> states_;  // of the files
  StepClock clock_{*this};
  std::uint64_t steps_ = 1;
  std::vector<Fault> faults_;
  std::vector<FakeSubmission> submissions_;
  std::uint64_t draws_ = 0;
  bool held_ = false;
};

// Deterministic contents: no two aligned 8-byte words of the files of one test are likely equal.
std::vector<std::byte> patterned_bytes(std::uint64_t seed, std::size_t bytes);

}  // namespace millrace::testing
