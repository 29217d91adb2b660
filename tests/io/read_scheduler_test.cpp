#include "io/read_scheduler.h"

#include <unistd.h>

#include <cerrno>
#include <thread>

#include "runtime/base/limits.h"
#include "tests/io/reading_world.h"
#include "tests/support/allocation_meter.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

ReadSchedulerOptions with_depth(std::uint32_t depth, std::uint64_t piece_bytes) {
  ReadSchedulerOptions options;
  options.reader.depth = depth;
  options.piece_bytes = piece_bytes;
  return options;
}

// A fake drive of one held read at depth 1: whatever is submitted next waits in the queues.
class HeldQueue {
 public:
  explicit HeldQueue(std::uint64_t piece_bytes = 4096)
      : world(64 * KiB, DirectMode::off), target(64 * KiB) {
    world.drive.hold();
    scheduler = world.schedule(Kind::fake, with_depth(1, piece_bytes));
    testing::submit(*scheduler, range(first, 0, ReadPriority::speculative));
    world.drive.wait_for_submissions(1);
  }

  // A range of `blocks` of 4096 bytes at block `at`.
  RangeRead* range(TestRange& made, std::uint64_t at, ReadPriority priority,
                   std::uint64_t blocks = 1) {
    return made.at(at * 4096, blocks * 4096, blocks * 4096, target.data() + at * 4096, finish,
                   priority);
  }
  void submit(TestRange& made, std::uint64_t at, ReadPriority priority, std::uint64_t blocks = 1) {
    testing::submit(*scheduler, range(made, at, priority, blocks));
  }
  // Lets all go and tells the blocks in the order in which the drive was asked, without the first.
  std::vector<std::uint64_t> order(int ranges) {
    world.drive.release();
    finish.wait_for(ranges);
    std::vector<std::uint64_t> blocks;
    for (const FakeSubmission& asked : world.drive.submissions())
      blocks.push_back(asked.offset_bytes / 4096);
    blocks.erase(blocks.begin());
    return blocks;
  }

  ReadingWorld world;
  Target target;
  Finish finish;
  TestRange first;
  std::unique_ptr<ReadScheduler> scheduler;
};

using Blocks = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("A range of any length arrives whole, and the counters tell its bytes") {
  const Kind kind = GENERATE(Kind::uring, Kind::threads, Kind::fake);
  CAPTURE(kind_name(kind));
  ReadingWorld world(300 * KiB + 123, GENERATE(DirectMode::automatic, DirectMode::off));
  const auto scheduler = world.schedule(kind, with_depth(4, 16 * KiB));
  if (scheduler == nullptr) return;
  REQUIRE(scheduler->reader_name() == std::string(kind_name(kind)));
  REQUIRE(scheduler->depth() == 4);
  const Target target(512 * KiB);
  std::uint64_t asked = 0;
  int count = 0;
  Finish finish;
  for (const std::uint64_t offset : {0u, 4096u, 100u * 1024u}) {
    for (const std::uint64_t wanted :
         {std::uint64_t{1}, 16 * KiB, 16 * KiB + 1, world.contents.size() - offset}) {
      CAPTURE(offset, wanted);
      target.clear();
      TestRange range;
      const std::uint64_t bytes = round_up(wanted, world.block());
      submit(*scheduler, range.at(offset, bytes, wanted, target.data(), finish));
      finish.wait_for(++count);
      REQUIRE(range.calls == 1);
      REQUIRE(range.status == 0);
      REQUIRE(world.holds(target.data(), offset, wanted));
      REQUIRE(target.data()[bytes] == std::byte{0xEE});
      asked += bytes;
    }
  }
  const ReadStats stats = scheduler->stats();
  REQUIRE(stats.bytes == asked);
  REQUIRE(stats.bytes_by_priority[static_cast<int>(ReadPriority::demand_first)] == asked);
  REQUIRE(stats.retries == 0);
  REQUIRE(stats.busy_ns > 0);
  REQUIRE(stats.owner_cpu_ns > 0);
}

TEST_CASE("A range is cut into equal pieces that come nearest to the piece size") {
  ReadingWorld world(200'000, DirectMode::off);
  const auto scheduler = world.schedule(Kind::fake, with_depth(8, 10'000));
  const Target target(200'000);
  Finish finish;
  TestRange range;
  submit(*scheduler, range.at(123, 34'567, 34'567, target.data(), finish));
  finish.wait_for(1);
  const auto asked = world.drive.submissions();
  REQUIRE(asked.size() == 3);
  for (std::size_t i = 0; i < 3; ++i) {
    REQUIRE(asked[i].offset_bytes == (i == 0 ? 123 : 123 + 11'523 + (i - 1) * 11'522));
    REQUIRE(asked[i].bytes == (i == 0 ? 11'523 : 11'522));
  }
  REQUIRE(scheduler->stats().reads == 3);
}

TEST_CASE("The drive is asked in order of priority, then of submission") {
  HeldQueue queue;
  TestRange r[6];
  queue.submit(r[0], 1, ReadPriority::speculative);
  queue.submit(r[1], 2, ReadPriority::demand_rest);
  queue.submit(r[2], 3, ReadPriority::demand_first);
  queue.submit(r[3], 4, ReadPriority::trunk);
  queue.submit(r[4], 5, ReadPriority::demand_first, 2);
  queue.submit(r[5], 7, ReadPriority::trunk);
  REQUIRE(queue.order(7) == Blocks{4, 7, 3, 5, 6, 2, 1});
  const ReadStats stats = queue.scheduler->stats();
  REQUIRE(stats.bytes_by_priority[0] == 2 * 4096);
  REQUIRE(stats.bytes_by_priority[1] == 3 * 4096);
  REQUIRE(stats.bytes_by_priority[2] == 1 * 4096);
  REQUIRE(stats.bytes_by_priority[3] == 2 * 4096);
}

TEST_CASE("A queued range moves to another priority, behind those already there") {
  HeldQueue queue;
  TestRange r[4];
  queue.submit(r[0], 1, ReadPriority::demand_first);
  queue.submit(r[1], 2, ReadPriority::speculative);
  queue.submit(r[2], 3, ReadPriority::speculative);
  queue.submit(r[3], 4, ReadPriority::demand_first);
  queue.scheduler->reprioritize(r[2].range, ReadPriority::demand_first);
  queue.scheduler->reprioritize(r[0].range, ReadPriority::demand_rest);
  queue.scheduler->reprioritize(queue.first.range, ReadPriority::trunk);  // in flight: no effect
  REQUIRE(queue.order(5) == Blocks{4, 3, 1, 2});
}

TEST_CASE("A range none of whose pieces is cut can be taken back, then done never runs") {
  HeldQueue queue;
  TestRange r[3];
  queue.submit(r[0], 1, ReadPriority::speculative);
  queue.submit(r[1], 2, ReadPriority::speculative);
  queue.submit(r[2], 3, ReadPriority::speculative);
  REQUIRE(queue.scheduler->cancel(r[2].range));
  REQUIRE_FALSE(queue.scheduler->cancel(r[2].range));
  REQUIRE(queue.scheduler->cancel(r[0].range));
  REQUIRE_FALSE(queue.scheduler->cancel(queue.first.range));
  queue.submit(r[2], 4, ReadPriority::speculative);
  REQUIRE(queue.order(3) == Blocks{2, 4});
  REQUIRE(r[0].calls == 0);
  REQUIRE_FALSE(queue.scheduler->cancel(r[1].range));
}

TEST_CASE("A range that is partly cut cannot be taken back but still moves") {
  ReadingWorld world(64 * KiB, DirectMode::off);
  world.drive.hold();
  const auto scheduler = world.schedule(Kind::fake, with_depth(1, 4096));
  const Target target(64 * KiB);
  Finish finish;
  TestRange guess;
  TestRange demand;
  submit(*scheduler,
         guess.at(0, 3 * 4096, 3 * 4096, target.data(), finish, ReadPriority::speculative));
  world.drive.wait_for_submissions(1);
  submit(*scheduler, demand.at(8 * 4096, 4096, 4096, target.data() + 32 * KiB, finish));
  REQUIRE_FALSE(scheduler->cancel(guess.range));
  scheduler->reprioritize(guess.range, ReadPriority::trunk);
  world.drive.release();
  finish.wait_for(2);
  const auto asked = world.drive.submissions();
  REQUIRE(asked.size() == 4);
  REQUIRE(asked[3].offset_bytes == 8 * 4096);
  REQUIRE(world.holds(target.data(), 0, 3 * 4096));
}

TEST_CASE("A piece that fails is tried again, and the range is whole in the end") {
  ReadingWorld world(64 * KiB, DirectMode::off);
  world.drive.fail(0, 5000, EIO, limits::read_retries_max);
  const auto scheduler = world.schedule(Kind::fake, with_depth(2, 4096));
  const Target target(64 * KiB);
  Finish finish;
  TestRange range;
  submit(*scheduler, range.at(0, 64 * KiB, 64 * KiB, target.data(), finish));
  finish.wait_for(1);
  REQUIRE(range.status == 0);
  REQUIRE(world.holds(target.data(), 0, 64 * KiB));
  REQUIRE(scheduler->stats().retries == limits::read_retries_max);
  REQUIRE(world.drive.submissions().size() == 16 + limits::read_retries_max);
}

TEST_CASE("A piece that keeps failing ends its range with the errno, the rest is not read") {
  ReadingWorld world(64 * KiB, DirectMode::off);
  world.drive.fail(0, 100, EIO, 1000);
  const auto scheduler = world.schedule(Kind::fake, with_depth(1, 4096));
  const Target target(64 * KiB);
  Finish finish;
  TestRange bad;
  TestRange good;
  RangeRead* const both[] = {
      bad.at(0, 32 * KiB, 32 * KiB, target.data(), finish),
      good.at(32 * KiB, 4096, 4096, target.data() + 32 * KiB, finish),
  };
  scheduler->submit(both);
  finish.wait_for(2);
  REQUIRE(bad.status == EIO);
  REQUIRE(bad.calls == 1);
  REQUIRE(good.status == 0);
  REQUIRE(world.drive.submissions().size() == 1 + limits::read_retries_max + 1);
}

TEST_CASE("The end of a truncated file is reported as -1 and not tried again") {
  const Kind kind = GENERATE(Kind::uring, Kind::threads, Kind::fake);
  CAPTURE(kind_name(kind));
  ReadingWorld world(256 * KiB, DirectMode::automatic);
  const auto scheduler = world.schedule(kind, with_depth(2, 32 * KiB));
  if (scheduler == nullptr) return;
  REQUIRE(truncate(world.path().c_str(), 100'000) == 0);
  world.drive.truncate(0, 100'000);
  const Target target(256 * KiB);
  Finish finish;
  TestRange range;
  submit(*scheduler, range.at(0, 256 * KiB, 256 * KiB, target.data(), finish));
  finish.wait_for(1);
  REQUIRE(range.status == -1);
  REQUIRE(scheduler->stats().retries == 0);
}

TEST_CASE("Ending the scheduler finishes what is in flight and cancels what is queued") {
  TestRange queued[3];
  {
    HeldQueue queue;
    queue.submit(queued[0], 1, ReadPriority::trunk);
    queue.submit(queued[1], 2, ReadPriority::speculative, 4);
    queue.world.drive.fail(0, 100, EIO, 1000);  // the one in flight is not tried again
    queue.world.drive.release();
    queue.scheduler.reset();
    REQUIRE(queue.finish.count() == 3);
    REQUIRE(queue.first.calls == 1);
  }
  REQUIRE(queued[0].calls == 1);
  REQUIRE(queued[1].calls == 1);
}

TEST_CASE("A queued range of an ending scheduler gets ECANCELED, one in flight its result") {
  const Kind kind = GENERATE(Kind::uring, Kind::threads);
  CAPTURE(kind_name(kind));
  ReadingWorld world(1 * MiB, DirectMode::automatic);
  const Target target(1 * MiB);
  Finish finish;
  std::vector<TestRange> ranges(256);
  {
    const auto scheduler = world.schedule(kind, with_depth(1, 4096));
    if (scheduler == nullptr) return;
    for (std::size_t i = 0; i < ranges.size(); ++i)
      submit(*scheduler, ranges[i].at(i * 4096, 4096, 4096, target.data() + i * 4096, finish));
  }
  REQUIRE(finish.count() == 256);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    REQUIRE(ranges[i].calls == 1);
    REQUIRE((ranges[i].status == 0 || ranges[i].status == ECANCELED));
    if (ranges[i].status == 0) REQUIRE(world.holds(target.data() + i * 4096, i * 4096, 4096));
  }
}

TEST_CASE("A range's end may submit the next range") {
  const Kind kind = GENERATE(Kind::uring, Kind::threads, Kind::fake);
  CAPTURE(kind_name(kind));
  ReadingWorld world(256 * KiB, DirectMode::automatic);
  const auto scheduler = world.schedule(kind, with_depth(2, 4096));
  if (scheduler == nullptr) return;
  const Target target(256 * KiB);
  struct Chain {
    ReadScheduler* scheduler;
    Finish finish;
    int left = 16;
    int failures = 0;
  } chain{scheduler.get(), {}, 16, 0};
  RangeRead range;
  range.bytes = range.needed_bytes = 16 * KiB;
  range.target = target.data();
  range.owner = &chain;
  range.done = [](RangeRead& ended, int status) {
    auto& self = *static_cast<Chain*>(ended.owner);
    self.failures += status != 0;
    if (--self.left == 0) {
      self.finish.one();
      return;
    }
    ended.offset_bytes += 16 * KiB;
    ended.target += 16 * KiB;
    submit(*self.scheduler, &ended);
  };
  submit(*scheduler, &range);
  chain.finish.wait_for(1);
  REQUIRE(chain.failures == 0);
  REQUIRE(world.holds(target.data(), 0, 256 * KiB));
}

TEST_CASE("Segments are given back and taken again while other threads read into the others") {
  const Kind kind = GENERATE(Kind::uring, Kind::threads);
  CAPTURE(kind_name(kind));
  constexpr std::uint64_t bytes = 256 * KiB;
  ReadingWorld world(bytes, DirectMode::automatic);
  PinnedMemory memory;
  REQUIRE(memory.allocate(3, bytes, bytes));
  ReadSchedulerOptions options = with_depth(4, 32 * KiB);
  options.reader.buffers = memory.segments();
  const auto scheduler = world.schedule(kind, options);
  if (scheduler == nullptr) return;
  const bool registered = scheduler->registered_buffers() == 3;
  if (!registered && kind == Kind::uring) WARN("buffers could not be registered here");
  const auto reads = [&](std::int32_t buffer, int times, int& right) {
    for (int i = 0; i < times; ++i) {
      Finish finish;
      TestRange one;
      std::byte* const target = memory.segments()[static_cast<std::size_t>(buffer)].data();
      RangeRead* const range = one.at(0, bytes, bytes, target, finish);
      range->buffer = registered ? buffer : -1;
      testing::submit(*scheduler, range);
      finish.wait_for(1);
      right += one.status == 0 && world.holds(target, 0, bytes) ? 1 : 0;
    }
  };
  int beside = 0, again = 0;
  std::thread other([&] { reads(0, 60, beside); });
  for (int turn = 0; turn < 20; ++turn) {
    CHECK_FALSE(scheduler->register_buffer(2, false));
    REQUIRE(memory.give_back(2));
    REQUIRE(memory.take_again(2));
    CHECK(scheduler->register_buffer(2, true) == registered);
    reads(2, 1, again);
  }
  other.join();
  CHECK(beside == 60);
  CHECK(again == 20);
}

TEST_CASE("Nothing is allocated after start") {
  const Kind kind = GENERATE(Kind::uring, Kind::threads);
  CAPTURE(kind_name(kind));
  ReadingWorld world(1 * MiB, DirectMode::automatic);
  const auto scheduler = world.schedule(kind, with_depth(4, 16 * KiB));
  if (scheduler == nullptr) return;
  const Target target(1 * MiB);
  Finish finish;
  std::vector<TestRange> ranges(64);
  reset_allocations();
  for (std::size_t i = 0; i < ranges.size(); ++i)
    submit(*scheduler, ranges[i].at(i * 16 * KiB, 16 * KiB, 16 * KiB, target.data() + i * 16 * KiB,
                                    finish, static_cast<ReadPriority>(i % 4)));
  finish.wait_for(64);
  const std::uint64_t calls = allocations().calls;
  REQUIRE(calls == 0);
  REQUIRE(world.holds(target.data(), 0, 1 * MiB));
}

TEST_CASE("A scheduler whose reader cannot be made fails with the reader's error") {
  const auto started = ReadScheduler::start_with(
      {},
      [](const ReaderOptions&, void*) -> Result<MadeReader> {
        return Error{ErrorCode::io, "no drive today"};
      },
      nullptr);
  REQUIRE_FALSE(started);
  REQUIRE(started.error().what == "no drive today");
}

TEST_CASE("A piece size that is no multiple of a file's block is refused with both numbers") {
  ReadingWorld world(64 * KiB, DirectMode::automatic);
  for (const std::uint64_t piece : {std::uint64_t{0}, 1 * GiB, std::uint64_t{777}}) {
    if (piece == 777 && !world.file().direct()) continue;
    ReadSchedulerOptions options = with_depth(4, piece);
    options.reader.files = world.files();
    const auto started = ReadScheduler::start(options);
    REQUIRE_FALSE(started);
    REQUIRE(started.error().code == ErrorCode::usage);
    REQUIRE(started.error().what.find(std::to_string(piece)) != std::string::npos);
  }
}
