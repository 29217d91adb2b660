// Guesses on the drive: behind everything that is asked for, and few at a time.
#include <algorithm>

#include "tests/io/reading_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

constexpr std::uint64_t piece = 4096;

// A held fake drive of depth 8. Guesses lie in the first half of the file, demand in the second.
struct GuessingWorld {
  explicit GuessingWorld(std::uint32_t speculative_pieces)
      : world(64 * piece, DirectMode::off), target(64 * piece) {
    world.drive.hold();
    ReadSchedulerOptions options;
    options.reader.depth = 8;
    options.piece_bytes = piece;
    options.speculative_pieces = speculative_pieces;
    scheduler = world.schedule(Kind::fake, options);
  }
  void ask(TestRange& made, std::uint64_t at, std::uint64_t pieces, ReadPriority priority) {
    submit(*scheduler, made.at(at * piece, pieces * piece, pieces * piece,
                               target.data() + at * piece, finish, priority));
  }
  std::vector<bool> guesses() const {  // in the order in which the drive was asked
    std::vector<bool> made;
    for (const FakeSubmission& asked : world.drive.submissions())
      made.push_back(asked.offset_bytes < 32 * piece);
    return made;
  }

  ReadingWorld world;
  Target target;
  Finish finish;
  std::unique_ptr<ReadScheduler> scheduler;
};

}  // namespace

TEST_CASE(
    "What is asked for waits for no more than the guesses in flight, however many are queued") {
  for (const std::uint32_t in_flight : {1u, 2u}) {
    CAPTURE(in_flight);
    GuessingWorld world(in_flight);
    TestRange guess, demand;
    world.ask(guess, 0, 30, ReadPriority::speculative);
    world.world.drive.wait_for_submissions(in_flight);
    world.ask(demand, 32, 20, ReadPriority::demand_first);
    // The rest of the depth goes to the demand, though the drive has not answered yet.
    world.world.drive.wait_for_submissions(8);
    std::vector<bool> order = world.guesses();
    CHECK(order.size() == 8);
    CHECK(std::count(order.begin(), order.end(), true) == in_flight);
    world.world.drive.release();
    world.finish.wait_for(2);
    CHECK(guess.status == 0);
    CHECK(demand.status == 0);
    // No guess goes out between the first and the last piece of the demand.
    order = world.guesses();
    REQUIRE(order.size() == 50);
    const std::size_t first =
        static_cast<std::size_t>(std::find(order.begin(), order.end(), false) - order.begin());
    CHECK(first == in_flight);
    for (std::size_t i = first; i < first + 20; ++i) CHECK_FALSE(order[i]);
  }
}

TEST_CASE("Guesses wait while anything else is in flight, and go out when all of it has come") {
  GuessingWorld world(2);
  TestRange guess, demand;
  world.ask(demand, 32, 3, ReadPriority::demand_rest);
  world.world.drive.wait_for_submissions(3);
  world.ask(guess, 0, 2, ReadPriority::speculative);
  CHECK(world.world.drive.submissions().size() == 3);
  world.world.drive.release();
  world.finish.wait_for(2);
  CHECK(world.guesses() == std::vector<bool>{false, false, false, true, true});
  CHECK(world.world.holds(world.target.data(), 0, 2 * piece));
}

TEST_CASE("A guess that is asked for goes on with the urgency of what was asked for") {
  GuessingWorld world(1);
  TestRange wanted, other;
  world.ask(other, 8, 4, ReadPriority::speculative);
  world.world.drive.wait_for_submissions(1);
  world.ask(wanted, 0, 4, ReadPriority::speculative);
  world.scheduler->reprioritize(wanted.range, ReadPriority::demand_first);
  TestRange wake;  // the owner looks at its queues again
  world.ask(wake, 40, 1, ReadPriority::demand_rest);
  world.world.drive.wait_for_submissions(6);
  const auto asked = world.world.drive.submissions();
  CHECK(asked[0].offset_bytes == 8 * piece);
  for (std::size_t i = 1; i < 5; ++i) CHECK(asked[i].offset_bytes == (i - 1) * piece);
  world.world.drive.release();
  world.finish.wait_for(3);
}
