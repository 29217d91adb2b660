// What the tests of this folder share: a file with known contents, memory to read into, and the
// three kinds of reader under one roof.
#pragma once

#include <catch2/catch.hpp>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "io/file.h"
#include "io/pinned_memory.h"
#include "io/read_scheduler.h"
#include "io/reader.h"
#include "runtime/base/units.h"
#include "tests/support/fake_reader.h"
#include "tests/support/temp_folder.h"

namespace millrace::testing {

enum class Kind { uring, threads, fake };

inline const char* kind_name(Kind kind) {
  return kind == Kind::uring ? "uring" : kind == Kind::threads ? "threads" : "fake";
}

// One file of patterned bytes, on disk and on a fake drive.
class ReadingWorld {
 public:
  ReadingWorld(std::size_t file_bytes, DirectMode mode, std::uint64_t seed = 7)
      : contents(patterned_bytes(seed, file_bytes)), drive(seed), path_(write()) {
    Result<File> opened = File::open(path_, mode);
    REQUIRE(opened);
    file_ = std::make_unique<File>(std::move(opened).value());
    files_ = {file_.get()};
    drive.block_bytes = file_->block_bytes();
    drive.add_file(contents);
  }

  const File& file() const { return *file_; }
  std::span<const File* const> files() const { return files_; }
  const std::string& path() const { return path_; }
  std::uint64_t block() const { return file_->block_bytes(); }
  std::uint64_t padded_bytes() const { return round_up(contents.size(), block()); }

  // Nothing where this machine refuses io_uring: then `kind` cannot be tested here.
  std::unique_ptr<Reader> make(Kind kind, std::uint32_t depth,
                               std::span<const std::span<std::byte>> buffers = {}) {
    ReaderOptions options;
    options.kind = kind == Kind::uring ? ReaderKind::uring : ReaderKind::threads;
    options.depth = depth;
    options.files = files_;
    options.buffers = buffers;
    Result<MadeReader> made =
        kind == Kind::fake ? FakeDrive::make_reader(options, &drive) : make_reader(options);
    if (!made && kind == Kind::uring) {
      WARN("io_uring not tested: " << made.error().what);
      return nullptr;
    }
    REQUIRE(made);
    return std::move(made->reader);
  }

  std::unique_ptr<ReadScheduler> schedule(Kind kind, ReadSchedulerOptions options) {
    options.reader.kind = kind == Kind::uring ? ReaderKind::uring : ReaderKind::threads;
    options.reader.files = files_;
    auto started = kind == Kind::fake
                       ? ReadScheduler::start_with(options, &FakeDrive::make_reader, &drive)
                       : ReadScheduler::start(options);
    if (!started && kind == Kind::uring) {
      WARN("io_uring not tested: " << started.error().what);
      return nullptr;
    }
    REQUIRE(started);
    return std::move(started).value();
  }

  bool holds(const std::byte* got, std::uint64_t offset, std::uint64_t bytes) const {
    return std::memcmp(got, contents.data() + offset, bytes) == 0;
  }

  const std::vector<std::byte> contents;
  FakeDrive drive;

 private:
  std::string write() {
    return folder_.write("data.bin",
                         {reinterpret_cast<const char*>(contents.data()), contents.size()});
  }

  TempFolder folder_;
  std::string path_;
  std::unique_ptr<File> file_;
  std::vector<const File*> files_;
};

// Block-aligned memory.
class Target {
 public:
  explicit Target(std::uint64_t bytes) {
    auto made = memory_.allocate(1, bytes);
    REQUIRE(made);
    block_ = made->front();
    clear();
  }
  std::byte* data() const { return block_.data; }
  void clear() const { std::memset(block_.data, 0xEE, block_.bytes); }

 private:
  PinnedMemory memory_;
  PinnedBlock block_;
};

// A read that remembers how it ended.
struct TestRead {
  Read read;
  int calls = 0;
  int status = -99;

  TestRead() { read.done = &TestRead::done; }
  static void done(Read& read, int errno_or_zero) {
    auto& self = *static_cast<TestRead*>(read.owner);
    ++self.calls;
    self.status = errno_or_zero;
  }
  Read& at(std::uint64_t offset, std::uint64_t bytes, std::uint64_t needed, std::byte* target) {
    read.owner = this;
    read.offset_bytes = offset;
    read.bytes = static_cast<std::uint32_t>(bytes);
    read.needed_bytes = static_cast<std::uint32_t>(needed);
    read.target = target;
    return read;
  }
};

// Counts ends of ranges across threads.
class Finish {
 public:
  void one() {
    const std::lock_guard lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void wait_for(int count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return count_ >= count; });
  }
  int count() {
    const std::lock_guard lock(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// A range that remembers how it ended.
struct TestRange {
  RangeRead range;
  Finish* finish = nullptr;
  int calls = 0;
  int status = -99;

  RangeRead* at(std::uint64_t offset, std::uint64_t bytes, std::uint64_t needed, std::byte* target,
                Finish& finish_to, ReadPriority priority = ReadPriority::demand_first) {
    range.offset_bytes = offset;
    range.bytes = bytes;
    range.needed_bytes = needed;
    range.target = target;
    range.priority = priority;
    range.owner = this;
    range.done = [](RangeRead& ended, int errno_or_zero) {
      auto& self = *static_cast<TestRange*>(ended.owner);
      ++self.calls;
      self.status = errno_or_zero;
      self.finish->one();
    };
    finish = &finish_to;
    return &range;
  }
};

inline void submit(ReadScheduler& scheduler, RangeRead* range) {
  RangeRead* const one[] = {range};
  scheduler.submit(one);
}

}  // namespace millrace::testing
