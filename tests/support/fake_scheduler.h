// A ReadScheduler without threads, files or time: ranges wait until the test lets one complete, in
// order of priority or in a seeded order, with the faults that the test asked for. The bytes it
// delivers are those of pattern_byte(). Ranges may be submitted and cancelled from any thread;
// step() plays the scheduler's thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "io/read_scheduler.h"

namespace millrace::testing {

// What lies at an offset of a fake file.
std::byte pattern_byte(std::uint32_t file, std::uint64_t offset) noexcept;

struct FakeSchedulerOptions {
  std::vector<std::uint64_t> file_bytes = {std::uint64_t{1} << 40};  // reads past it end at -1
  std::optional<std::uint64_t> seed;  // any order; without: by priority, then first come
  std::size_t log_max = 4096;         // submissions that are remembered
  bool fill_targets = true;           // off: only the bookkeeping is of interest
};

class FakeScheduler final : public ReadScheduler {
 public:
  struct Submitted {
    std::uint32_t file;
    std::uint64_t offset_bytes;
    std::uint64_t bytes;
    ReadPriority priority;
  };

  explicit FakeScheduler(FakeSchedulerOptions options);
  ~FakeScheduler() override;  // fails what is queued with ECANCELED

  // Completes one range; false if none is queued.
  bool step();
  // Completes ranges until none is queued, those that callbacks add included.
  void run() {
    while (step()) {
    }
  }
  // The next `times` reads that cover `offset` of `file` fail with `status`; with 0 they end well,
  // but the byte there is wrong.
  void set_fault(std::uint32_t file, std::uint64_t offset, int status, unsigned times);
  void set_file_bytes(std::uint32_t file, std::uint64_t bytes) {
    options_.file_bytes[file] = bytes;
  }
  std::size_t queued() const;
  const std::vector<Submitted>& log() const { return log_; }
  void clear_log() { log_.clear(); }

  void submit(std::span<RangeRead* const> ranges) noexcept override;
  void reprioritize(RangeRead& range, ReadPriority priority) noexcept override;
  bool cancel(RangeRead& range) noexcept override;
  bool register_buffer(std::uint32_t /*buffer*/, bool /*wanted*/) noexcept override {
    return false;
  }
  ReadStats stats() const noexcept override;
  std::vector<DriveReads> drives() const override { return {}; }
  const char* reader_name() const noexcept override { return "fake"; }
  std::uint32_t depth() const noexcept override { return 1; }
  std::uint64_t piece_bytes() const noexcept override { return std::uint64_t{1} << 20; }
  std::uint32_t registered_buffers() const noexcept override { return 0; }
  const std::string& fallback_reason() const noexcept override { return none_; }
  const std::string& buffers_reason() const noexcept override { return none_; }

 private:
  struct Fault {
    std::uint32_t file;
    std::uint64_t offset;
    int status;
    unsigned times;
  };
  RangeRead* take();
  int deliver(RangeRead& range);

  FakeSchedulerOptions options_;
  std::mt19937_64 random_;
  mutable std::mutex mutex_;
  std::vector<RangeRead*> queue_;  // in order of submission
  std::vector<Submitted> log_;
  std::vector<Fault> faults_;
  ReadStats stats_;
  std::string none_;
};

}  // namespace millrace::testing
