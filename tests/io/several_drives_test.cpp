// The scheduler over drives that hold copies of the same files.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>

#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "tests/io/reading_world.h"
#include "tests/support/allocation_meter.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

constexpr std::uint64_t piece = 8 * KiB;

// The same bytes in `copies` files, on disk and on a fake drive: file i lies on drive i.
class Copies {
 public:
  explicit Copies(std::size_t file_bytes, std::size_t copies = 2, std::uint64_t seed = 5)
      : contents(patterned_bytes(seed, file_bytes)), fake(seed), target(file_bytes + 64 * KiB) {
    const std::string_view text(reinterpret_cast<const char*>(contents.data()), contents.size());
    std::vector<File> opened;
    for (std::size_t i = 0; i < copies; ++i) {
      paths.push_back(folder_.write("copy" + std::to_string(i), text));
      auto file = File::open(paths.back(), DirectMode::automatic);
      REQUIRE(file);
      files_.push_back(std::move(file).value());
      fake.add_file(contents);
      options.drives.push_back({.name = paths.back(),
                                .files = {static_cast<std::uint32_t>(i)},
                                .depth = 4,
                                .piece_bytes = piece});
    }
    for (const File& file : files_) list_.push_back(&file);
    fake.block_bytes = files_.front().block_bytes();
    set_log_level(LogLevel::off);  // drives are dropped on purpose
  }
  ~Copies() { set_log_level(LogLevel::warning); }

  bool start(Kind kind) {
    options.reader.files = list_;
    options.reader.kind = kind == Kind::uring ? ReaderKind::uring : ReaderKind::threads;
    options.clock = kind == Kind::fake ? &fake.clock() : nullptr;
    options.piece_bytes = piece;
    auto started = kind == Kind::fake
                       ? ReadScheduler::start_with(options, &FakeDrive::make_reader, &fake)
                       : ReadScheduler::start(options);
    if (!started && kind == Kind::uring) {
      WARN("io_uring not tested: " << started.error().what);
      return false;
    }
    REQUIRE(started);
    scheduler = std::move(started).value();
    return true;
  }

  // Asks for `count` ranges of `bytes`, one behind the other.
  void ask(std::size_t count, std::uint64_t bytes,
           ReadPriority priority = ReadPriority::demand_first) {
    const std::size_t begin = ranges.size();
    if (begin + count > ranges_max) FAIL("more ranges than there is room for");
    ranges.resize(begin + count);
    for (std::size_t i = begin; i < ranges.size(); ++i) {
      submit(*scheduler, ranges[i].at(asked_bytes, bytes, bytes, target.data() + asked_bytes,
                                      finish, priority));
      asked_bytes += bytes;
    }
  }
  void wait() { finish.wait_for(static_cast<int>(ranges.size())); }
  bool all_right() {
    return std::all_of(
               ranges.begin(), ranges.end(),
               [](const TestRange& range) { return range.status == 0 && range.calls == 1; }) &&
           std::equal(contents.begin(), contents.begin() + static_cast<std::ptrdiff_t>(asked_bytes),
                      target.data());
  }
  // Bytes that each drive of the fake was asked for.
  std::map<std::uint32_t, std::uint64_t> asked_of() const {
    std::map<std::uint32_t, std::uint64_t> bytes;
    for (const FakeSubmission& asked : fake.submissions()) bytes[asked.file] += asked.bytes;
    return bytes;
  }

  static constexpr std::size_t ranges_max = 512;
  const std::vector<std::byte> contents;
  std::vector<std::string> paths;
  FakeDrive fake;
  Target target;
  ReadSchedulerOptions options;
  Finish finish;
  std::vector<TestRange> ranges = reserved();
  std::uint64_t asked_bytes = 0;
  std::unique_ptr<ReadScheduler> scheduler;

 private:
  static std::vector<TestRange> reserved() {  // ranges do not move
    std::vector<TestRange> list;
    list.reserve(ranges_max);
    return list;
  }
  TempFolder folder_;
  std::vector<File> files_;
  std::vector<const File*> list_;
};

}  // namespace

TEST_CASE("Drives with the same bytes share what is asked for, and every range is whole") {
  const Kind kind = GENERATE(Kind::uring, Kind::threads, Kind::fake);
  const bool stripe = GENERATE(false, true);
  CAPTURE(kind_name(kind), stripe);
  Copies copies(4 * MiB, 3);
  copies.options.stripe = stripe;
  if (!copies.start(kind)) return;
  CHECK(copies.scheduler->depth() == 12);
  copies.ask(64, 40 * KiB);
  copies.ask(20, 4 * KiB, ReadPriority::demand_rest);
  copies.ask(2, 300 * KiB, ReadPriority::trunk);
  copies.wait();
  CHECK(copies.all_right());
  const auto drives = copies.scheduler->drives();
  REQUIRE(drives.size() == 3);
  std::uint64_t bytes = 0;
  for (const DriveReads& drive : drives) {
    CHECK(drive.bytes > 0);
    CHECK(drive.depth == 4);
    CHECK(drive.dropped.empty());
    CHECK(drive.retries == 0);
    bytes += drive.bytes;
  }
  CHECK(bytes == copies.asked_bytes);
  CHECK(copies.scheduler->stats().bytes == copies.asked_bytes);
}

TEST_CASE("One drive reports itself like several do") {
  ReadingWorld world(64 * KiB, DirectMode::off);
  const auto scheduler = world.schedule(Kind::threads, {});
  const Target target(64 * KiB);
  Finish finish;
  TestRange range;
  submit(*scheduler, range.at(0, 64 * KiB, 64 * KiB, target.data(), finish));
  finish.wait_for(1);
  const auto drives = scheduler->drives();
  REQUIRE(drives.size() == 1);
  CHECK(drives[0].name == world.path());
  CHECK(drives[0].bytes == 64 * KiB);
  CHECK(drives[0].dropped.empty());
}

TEST_CASE("A range stays on one drive, unless reads are striped or it is of the trunk") {
  const bool stripe = GENERATE(false, true);
  const auto priority = GENERATE(ReadPriority::demand_first, ReadPriority::trunk);
  CAPTURE(stripe, static_cast<int>(priority));
  Copies copies(4 * MiB);
  copies.options.stripe = stripe;
  REQUIRE(copies.start(Kind::fake));
  copies.ask(20, 10 * piece, priority);
  copies.wait();
  REQUIRE(copies.all_right());
  std::map<std::uint64_t, std::set<std::uint32_t>> drives_of_range;
  for (const FakeSubmission& asked : copies.fake.submissions())
    drives_of_range[asked.offset_bytes / (10 * piece)].insert(asked.file);
  REQUIRE(drives_of_range.size() == 20);
  const bool divided = stripe || priority == ReadPriority::trunk;
  const auto several = std::count_if(drives_of_range.begin(), drives_of_range.end(),
                                     [](const auto& range) { return range.second.size() > 1; });
  if (divided) CHECK(several > 15);
  else CHECK(several == 0);
  CHECK(copies.asked_of().size() == 2);
}

TEST_CASE("What is asked for first is read first, over all drives") {
  const bool stripe = GENERATE(false, true);
  CAPTURE(stripe);
  Copies copies(4 * MiB);
  copies.options.stripe = stripe;
  for (ReadDrive& drive : copies.options.drives) drive.depth = 1;
  copies.fake.delay_steps_max = 1;
  copies.fake.hold();
  REQUIRE(copies.start(Kind::fake));
  copies.ask(2, piece, ReadPriority::trunk);
  copies.fake.wait_for_submissions(2);  // both drives are full
  const std::uint64_t rest = copies.asked_bytes;
  copies.ask(10, 2 * piece, ReadPriority::demand_rest);
  const std::uint64_t first = copies.asked_bytes;
  copies.ask(10, 2 * piece, ReadPriority::demand_first);
  copies.fake.release();
  copies.wait();
  REQUIRE(copies.all_right());
  const auto asked = copies.fake.submissions();
  std::size_t urgent = 0;
  for (std::size_t i = 2; i < 2 + 20; ++i) urgent += asked[i].offset_bytes >= first;
  CHECK(urgent == 20);
  CHECK(std::all_of(asked.begin() + 22, asked.end(), [&](const FakeSubmission& late) {
    return late.offset_bytes >= rest && late.offset_bytes < first;
  }));
}

TEST_CASE("A drive that fails is dropped, and what it owes is read from the others") {
  const auto code = GENERATE(EIO, ENODEV, EREMOTEIO);
  const std::uint32_t broken = GENERATE(0u, 1u);
  const unsigned after = GENERATE(0u, 1u, 17u);
  const bool stripe = GENERATE(false, true);
  CAPTURE(code, broken, after, stripe);
  Copies copies(4 * MiB);
  copies.options.stripe = stripe;
  copies.fake.break_file(broken, code, after);
  REQUIRE(copies.start(Kind::fake));
  copies.ask(80, 40 * KiB);
  copies.wait();
  CHECK(copies.all_right());
  const auto drives = copies.scheduler->drives();
  CHECK(drives[1 - broken].dropped.empty());
  CHECK(drives[broken].dropped.find(copies.paths[broken]) == 0);
  CHECK(drives[broken].dropped.find("offset") != std::string::npos);
  CHECK(drives[broken].bytes <= (after + 4) * piece);
  CHECK(drives[0].bytes + drives[1].bytes == copies.asked_bytes);
  // It is asked no more, but for what was under way, tried as often as any read is.
  const std::uint64_t asked = copies.asked_of()[broken];
  copies.ask(10, 40 * KiB);
  copies.wait();
  CHECK(copies.all_right());
  CHECK(copies.asked_of()[broken] == asked);
  CHECK(asked <= (after + 4 * (1 + limits::read_retries_max)) * piece);
}

TEST_CASE("Failures that pass drop no drive") {
  Copies copies(1 * MiB);
  copies.fake.fail(0, 5000, EIO, limits::read_retries_max);
  copies.fake.fail(1, 5000, EIO, limits::read_retries_max);
  REQUIRE(copies.start(Kind::fake));
  copies.ask(20, 40 * KiB);
  copies.wait();
  CHECK(copies.all_right());
  for (const DriveReads& drive : copies.scheduler->drives()) CHECK(drive.dropped.empty());
  CHECK(copies.scheduler->stats().retries == limits::read_retries_max);
}

TEST_CASE("When the last drive fails too, its ranges end with its errno and name its file") {
  const bool stripe = GENERATE(false, true);
  CAPTURE(stripe);
  Copies copies(4 * MiB, 3);
  copies.options.stripe = stripe;
  copies.fake.break_file(0, EIO, 10);
  copies.fake.break_file(2, ENODEV, 15);
  copies.fake.break_file(1, ENXIO, 40);
  REQUIRE(copies.start(Kind::fake));
  copies.ask(80, 40 * KiB);
  copies.wait();
  const auto drives = copies.scheduler->drives();
  CHECK_FALSE(drives[0].dropped.empty());
  CHECK_FALSE(drives[2].dropped.empty());
  CHECK(drives[1].dropped.empty());
  std::size_t failed = 0;
  for (const TestRange& range : copies.ranges) {
    CHECK(range.calls == 1);
    if (range.status == 0) continue;
    ++failed;
    CHECK(range.status == ENXIO);
    CHECK(range.range.source_file == 1);
  }
  CHECK(failed > 0);
  CHECK(failed < 80);
}

TEST_CASE("A copy that is cut short is dropped, on every reader") {
  const Kind kind = GENERATE(Kind::uring, Kind::threads, Kind::fake);
  const std::uint32_t cut = GENERATE(0u, 1u);
  CAPTURE(kind_name(kind), cut);
  Copies copies(2 * MiB);
  copies.options.stripe = true;
  if (!copies.start(kind)) return;
  copies.ask(10, 40 * KiB);
  copies.wait();
  REQUIRE(truncate(copies.paths[cut].c_str(), 500'000) == 0);
  copies.fake.truncate(cut, 500'000);
  copies.ask(39, 40 * KiB);
  copies.wait();
  CHECK(copies.all_right());
  const auto drives = copies.scheduler->drives();
  CHECK(drives[1 - cut].dropped.empty());
  CHECK(drives[cut].dropped.find("truncated from 2097152 to 500000 bytes") != std::string::npos);
}

TEST_CASE("A file that only a dropped drive has is still read there") {
  Copies copies(1 * MiB);
  copies.fake.add_file(copies.contents);
  // Ranges name two files; of the second there is one copy.
  copies.options.drives[0].files = {0, 0};
  copies.options.drives[1].files = {1, ReadDrive::no_file};
  copies.fake.fail(0, 5000, EIO, 1 + limits::read_retries_max);
  REQUIRE(copies.start(Kind::fake));
  copies.ask(1, 40 * KiB);
  copies.wait();
  REQUIRE(copies.all_right());
  REQUIRE_FALSE(copies.scheduler->drives()[0].dropped.empty());
  TestRange only;
  only.range.file = 1;
  submit(*copies.scheduler,
         only.at(80 * KiB, 40 * KiB, 40 * KiB, copies.target.data() + 80 * KiB, copies.finish));
  copies.finish.wait_for(2);
  CHECK(only.status == 0);
  CHECK(only.range.source_file == 0);
}

TEST_CASE("What came wrong is read again on another drive") {
  const std::uint32_t first = GENERATE(0u, 1u);
  Copies copies(1 * MiB);
  copies.options.drives[first].bytes_per_second = 1e9;
  copies.options.drives[1 - first].bytes_per_second = 1e6;
  REQUIRE(copies.start(Kind::fake));
  copies.ask(1, 3 * piece);
  copies.wait();
  REQUIRE(copies.asked_of() == std::map<std::uint32_t, std::uint64_t>{{first, 3 * piece}});
  for (int again = 1; again <= 2; ++again) {
    TestRange& range = copies.ranges[0];
    range.range.elsewhere = true;
    submit(*copies.scheduler, &range.range);
    copies.finish.wait_for(1 + again);
    CHECK(range.status == 0);
    CHECK(copies.asked_of()[1 - first] == 3 * piece);
    CHECK(copies.asked_of()[first] == (again == 1 ? 3 : 6) * piece);
  }
}

TEST_CASE("A drive that becomes slow gets less of what is asked for") {
  const bool stripe = GENERATE(false, true);
  CAPTURE(stripe);
  Copies copies(16 * MiB);
  copies.options.stripe = stripe;
  copies.fake.set_pace(0, 4);
  copies.fake.set_pace(1, 4);
  copies.fake.set_pace(1, 40, 500);  // milliseconds for each read, after 500 of them
  copies.fake.hold();
  REQUIRE(copies.start(Kind::fake));
  copies.ask(400, 40 * KiB);  // 2000 pieces
  copies.fake.release();
  copies.wait();
  REQUIRE(copies.all_right());
  const auto asked = copies.fake.submissions();
  const auto of_second = [&](std::size_t begin, std::size_t end) {
    return std::count_if(asked.begin() + static_cast<std::ptrdiff_t>(begin),
                         asked.begin() + static_cast<std::ptrdiff_t>(end),
                         [](const FakeSubmission& one) { return one.file == 1; });
  };
  CHECK(of_second(0, 900) > 360);
  CHECK(of_second(0, 900) < 540);
  CHECK(of_second(asked.size() - 500, asked.size()) < 100);
}

TEST_CASE("Nothing is allocated after start, with several drives too") {
  const Kind kind = GENERATE(Kind::uring, Kind::threads);
  CAPTURE(kind_name(kind));
  Copies copies(2 * MiB);
  copies.options.stripe = GENERATE(false, true);
  if (!copies.start(kind)) return;
  reset_allocations();
  copies.ask(40, 40 * KiB);
  copies.wait();
  const std::uint64_t calls = allocations().calls;
  CHECK(calls == 0);
  CHECK(copies.all_right());
}

TEST_CASE("Guesses wait for what is asked for on all drives") {
  Copies copies(1 * MiB);
  copies.fake.hold();
  REQUIRE(copies.start(Kind::fake));
  copies.ask(1, 5 * piece, ReadPriority::demand_first);
  copies.fake.wait_for_submissions(4);
  copies.ask(4, piece, ReadPriority::speculative);
  copies.fake.release();
  copies.wait();
  REQUIRE(copies.all_right());
  const auto asked = copies.fake.submissions();
  REQUIRE(asked.size() == 9);
  for (std::size_t i = 0; i < 5; ++i) CHECK(asked[i].offset_bytes < 5 * piece);
}

TEST_CASE("Ending the scheduler ends what several drives still owe") {
  const bool broken = GENERATE(false, true);
  Copies copies(2 * MiB);
  copies.fake.hold();
  if (broken) copies.fake.break_file(1, EIO);
  REQUIRE(copies.start(Kind::fake));
  copies.ask(40, 40 * KiB);
  copies.fake.wait_for_submissions(8);
  copies.fake.release();
  copies.scheduler.reset();
  CHECK(copies.finish.count() == 40);
  for (const TestRange& range : copies.ranges) CHECK(range.calls == 1);
}

TEST_CASE("A drive's piece that is no multiple of every block is refused") {
  Copies copies(64 * KiB);
  copies.options.drives[1].piece_bytes = 1000;
  auto file = File::open(copies.paths[0], DirectMode::automatic);
  REQUIRE(file);
  if (!file->direct()) return;
  const File* const list[] = {&*file, &*file};
  copies.options.reader.files = list;
  const auto started = ReadScheduler::start(copies.options);
  REQUIRE_FALSE(started);
  CHECK(started.error().what.find("piece size 1000") == 0);
}
