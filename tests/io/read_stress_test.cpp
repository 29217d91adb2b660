// Many ranges from several threads, drawn from a seed, over all readers: each ends once, with the
// right bytes or the fault that the drive had.
#include <cerrno>
#include <random>
#include <thread>

#include "runtime/base/hash.h"
#include "tests/io/reading_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

constexpr std::uint64_t file_bytes = 3 * MiB + 1000;
constexpr std::uint64_t range_bytes_max = 200 * KiB;
constexpr std::size_t rounds = 40;
constexpr std::size_t ranges_at_once = 6;

struct Tally {
  std::uint64_t right = 0;
  std::uint64_t wrong = 0;
  std::uint64_t failed = 0;     // with EIO
  std::uint64_t cancelled = 0;  // taken back in time
  std::uint64_t odd = 0;        // ended twice, never, or with another status
};

// One thread's work: rounds of ranges at random places and priorities, some moved, some taken back.
Tally work(ReadScheduler& scheduler, const ReadingWorld& world, std::byte* memory,
           std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Tally tally;
  for (std::size_t round = 0; round < rounds; ++round) {
    Finish finish;
    TestRange ranges[ranges_at_once];
    RangeRead* list[ranges_at_once];
    bool taken_back[ranges_at_once] = {};
    int expected = 0;
    for (std::size_t i = 0; i < ranges_at_once; ++i) {
      const std::uint64_t offset = round_down(random() % file_bytes, world.block());
      const std::uint64_t wanted =
          std::min(1 + random() % (range_bytes_max - world.block()), file_bytes - offset);
      list[i] = ranges[i].at(offset, round_up(wanted, world.block()), wanted,
                             memory + i * range_bytes_max, finish,
                             static_cast<ReadPriority>(random() % 4));
    }
    scheduler.submit(list);
    for (std::size_t i = 0; i < ranges_at_once; ++i) {
      if (random() % 4 == 0)
        scheduler.reprioritize(ranges[i].range, static_cast<ReadPriority>(random() % 4));
      if (random() % 4 == 0) taken_back[i] = scheduler.cancel(ranges[i].range);
      expected += !taken_back[i];
    }
    finish.wait_for(expected);
    for (std::size_t i = 0; i < ranges_at_once; ++i) {
      const RangeRead& range = ranges[i].range;
      if (taken_back[i]) {
        ++(ranges[i].calls == 0 ? tally.cancelled : tally.odd);
      } else if (ranges[i].calls != 1) {
        ++tally.odd;
      } else if (ranges[i].status == 0) {
        const bool same = hash64(range.target, range.needed_bytes) ==
                          hash64(world.contents.data() + range.offset_bytes, range.needed_bytes);
        ++(same ? tally.right : tally.wrong);
      } else {
        ++(ranges[i].status == EIO ? tally.failed : tally.odd);
      }
    }
  }
  return tally;
}

}  // namespace

TEST_CASE("Ranges from several threads all end once and right, by seed") {
  const Kind kind = GENERATE(Kind::uring, Kind::threads, Kind::fake);
  const DirectMode mode = GENERATE(DirectMode::automatic, DirectMode::off);
  const bool registered = GENERATE(true, false);
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  CAPTURE(kind_name(kind), registered, seed);
  ReadingWorld world(file_bytes, mode, seed);
  world.drive.short_reads = true;
  world.drive.faults_per_1000 = 150;
  constexpr std::size_t threads = 3;
  PinnedMemory memory;
  const auto blocks = memory.allocate(threads, ranges_at_once * range_bytes_max);
  REQUIRE(blocks);
  ReadSchedulerOptions options;
  options.reader.depth = seed == 1 ? 1 : 7;
  options.piece_bytes = 32 * KiB;
  if (registered) options.reader.buffers = memory.segments();
  const auto scheduler = world.schedule(kind, options);
  if (scheduler == nullptr) return;

  Tally tallies[threads];
  std::vector<std::thread> workers;
  for (std::size_t i = 0; i < threads; ++i) {
    workers.emplace_back(
        [&, i] { tallies[i] = work(*scheduler, world, (*blocks)[i].data, seed * 100 + i); });
  }
  for (std::thread& worker : workers) worker.join();
  for (const Tally& tally : tallies) {
    REQUIRE(tally.wrong == 0);
    REQUIRE(tally.odd == 0);
    REQUIRE(tally.right > 0);
    if (kind != Kind::fake) REQUIRE(tally.failed == 0);
    REQUIRE(tally.right + tally.failed + tally.cancelled == rounds * ranges_at_once);
  }
  if (kind == Kind::fake) REQUIRE(scheduler->stats().retries > 0);
}
