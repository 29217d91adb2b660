#include "io/read_division.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <deque>
#include <limits>
#include <random>
#include <vector>

#include "runtime/base/units.h"

using namespace millrace;

namespace {

constexpr std::uint32_t block = 4096;
constexpr ReadDivision::Drives both = 3;

std::vector<ReadDivision::Drive> two_drives(double first, double second, std::uint32_t depth = 16,
                                            std::uint64_t piece = 1 * MiB) {
  return {{depth, piece, first}, {depth, piece, second}};
}

// A drive that serves one read after the other, each a while after it was asked for.
struct SimulatedDrive {
  double bytes_per_second = 0;
  double latency_ns = 0;
  double free_at = 0;
};

// Drives, and ranges that are cut for them as the scheduler does it.
class Simulation {
 public:
  Simulation(std::vector<ReadDivision::Drive> told, std::vector<SimulatedDrive> real)
      : drives(std::move(real)), bytes(drives.size(), 0), division_(told, block) {}

  // Reads ranges of these sizes, all asked for now.
  void read(const std::vector<std::uint64_t>& sizes, bool stripe) {
    for (const std::uint64_t size : sizes) queue_.push_back({size, 0});
    cut(stripe);
    while (!in_flight_.empty()) {
      const auto next =
          std::min_element(in_flight_.begin(), in_flight_.end(),
                           [](const Flight& a, const Flight& b) { return a.ends_at < b.ends_at; });
      now_ns = next->ends_at;
      division_.ended(next->drive, next->bytes, true);
      bytes[next->drive] += next->bytes;
      in_flight_.erase(next);
      cut(stripe);
    }
    REQUIRE(queue_.empty());
  }

  std::vector<SimulatedDrive> drives;
  std::vector<std::uint64_t> bytes;  // that each has brought
  double now_ns = 1;

 private:
  struct Range {
    std::uint64_t rest;
    ReadDivision::Drives begun_on;
  };
  struct Flight {
    std::uint32_t drive;
    std::uint64_t bytes;
    double ends_at;
  };

  void cut(bool stripe) {
    const ReadDivision::Drives all = (1u << drives.size()) - 1;
    division_.begin(static_cast<std::uint64_t>(now_ns));
    for (std::size_t i = 0; i < queue_.size() && division_.room(all);) {
      Range& range = queue_[i];
      const auto part = stripe ? division_.divided(range.rest, all)
                               : division_.whole(range.rest, range.begun_on ? range.begun_on : all);
      if (part.bytes == 0) {
        ++i;
        continue;
      }
      send(part);
      range.begun_on = 1u << part.drive;
      range.rest -= part.bytes;
      if (range.rest == 0) queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  void send(const ReadDivision::Part& part) {
    division_.sent(part.drive, part.bytes);
    SimulatedDrive& drive = drives[part.drive];
    drive.free_at = std::max(drive.free_at, now_ns + drive.latency_ns) +
                    static_cast<double>(part.bytes) / drive.bytes_per_second * 1e9;
    in_flight_.push_back({part.drive, part.bytes, drive.free_at});
  }

  ReadDivision division_;
  std::deque<Range> queue_;
  std::vector<Flight> in_flight_;
};

double share(const Simulation& of, std::size_t drive) {
  std::uint64_t all = 0;
  for (const std::uint64_t bytes : of.bytes) all += bytes;
  return static_cast<double>(of.bytes[drive]) / static_cast<double>(all);
}

}  // namespace

TEST_CASE("Whole ranges go to the drive that would have them first, loads included") {
  ReadDivision division(two_drives(200e6, 100e6), block);
  division.begin(1);
  std::vector<std::uint32_t> order;
  for (int i = 0; i < 6; ++i) {
    const auto part = division.whole(1 * MiB, both);
    REQUIRE(part.bytes == 1 * MiB);
    division.sent(part.drive, part.bytes);
    order.push_back(part.drive);
  }
  CHECK(order == std::vector<std::uint32_t>{0, 0, 1, 0, 0, 1});
}

TEST_CASE("A divided range is shared by speed, at borders of blocks") {
  ReadDivision division(two_drives(200e6, 100e6, 16, 8 * MiB), block);
  division.begin(1);
  const auto first = division.divided(3 * MiB, both);
  CHECK(first.drive == 0);
  CHECK(first.bytes == 2 * MiB);
  division.sent(first.drive, first.bytes);
  const auto second = division.divided(1 * MiB, both);
  CHECK(second.drive == 1);
  CHECK(second.bytes == 1 * MiB);
  division.sent(second.drive, second.bytes);
  // The next one too, and what does not divide evenly is rounded to a block.
  const auto third = division.divided(1'000'000 / block * block, both);
  CHECK(third.drive == 0);
  CHECK(third.bytes % block == 0);
  CHECK(third.bytes > 660'000);
  CHECK(third.bytes < 676'000);
}

TEST_CASE("Shares too small for a read of their own are left with the others") {
  ReadDivision division(two_drives(300e6, 300e6), block);
  division.begin(1);
  CHECK(division.divided(2 * ReadDivision::part_bytes_min - block, both).bytes ==
        2 * ReadDivision::part_bytes_min - block);
  CHECK(division.divided(2 * ReadDivision::part_bytes_min, both).bytes ==
        ReadDivision::part_bytes_min);
  // A drive that is 100 times slower gets none of a small range, and a share of a large one.
  ReadDivision unequal(two_drives(300e6, 3e6, 16, 64 * MiB), block);
  unequal.begin(1);
  CHECK(unequal.divided(1 * MiB, both).bytes == 1 * MiB);
  const auto large = unequal.divided(60 * MiB, both);
  CHECK(large.drive == 0);
  CHECK(large.bytes < 60 * MiB);
  CHECK(large.bytes > 59 * MiB);
}

TEST_CASE("A range waits for a drive that is full, if it would still bring it first") {
  const bool stripe = GENERATE(false, true);
  ReadDivision division(two_drives(1000e6, 10e6, 2), block);
  division.begin(1);
  const auto next = [&](std::uint64_t bytes) {
    return stripe ? division.divided(bytes, both) : division.whole(bytes, both);
  };
  for (int i = 0; i < 2; ++i) {
    const auto part = next(1 * MiB);
    REQUIRE(part.drive == 0);
    REQUIRE(part.bytes == 1 * MiB);
    division.sent(0, part.bytes);
  }
  // Others that wait count, until the slow drive would be no later.
  int waiting = 0;
  while (next(1 * MiB).bytes == 0) REQUIRE(++waiting < 200);
  CHECK(waiting > (stripe ? 1 : 90));
  division.ended(0, 1 * MiB, true);
  division.begin(2);
  CHECK(next(1 * MiB).drive == 0);
}

TEST_CASE("Drives of any speeds and latencies together read nearly as fast as their sum") {
  struct Case {
    double rates[2];
    double latency_us[2];
    double told[2];  // by their profiles; 0: nothing
  };
  const Case drives =
      GENERATE(Case{{200e6, 100e6}, {100, 100}, {0, 0}}, Case{{100e6, 200e6}, {100, 100}, {0, 0}},
               Case{{200e6, 100e6}, {100, 100}, {100e6, 200e6}}, Case{{3e9, 3e9}, {80, 80}, {0, 0}},
               Case{{6e9, 3e9}, {60, 90}, {6e9, 3e9}}, Case{{3e9, 150e6}, {80, 4000}, {0, 0}},
               Case{{500e6, 500e6}, {5000, 80}, {0, 0}});
  const bool stripe = GENERATE(false, true);
  const bool deep = GENERATE(false, true);
  CAPTURE(drives.rates[0], drives.rates[1], drives.latency_us[0], drives.latency_us[1], stripe,
          deep);
  Simulation run({{16, 1 * MiB, drives.told[0]}, {16, 1 * MiB, drives.told[1]}},
                 {{drives.rates[0], drives.latency_us[0] * 1e3, 0},
                  {drives.rates[1], drives.latency_us[1] * 1e3, 0}});
  // A prompt's queue, or token by token the 24 slices of 8 experts.
  const std::vector<std::uint64_t> batch(deep ? 2000 : 24, 864 * KiB);
  double batch_bytes = 0;
  for (const std::uint64_t size : batch) batch_bytes += static_cast<double>(size);
  const int batches = deep ? 2 : 200;
  double start = 0;
  for (int i = 0; i < 2 * batches; ++i) {
    if (i == batches) start = run.now_ns;  // the first half is for learning
    run.read(batch, stripe);
  }
  const double seconds = (run.now_ns - start) * 1e-9;
  const double sum = drives.rates[0] + drives.rates[1];
  // What the better drive does alone, and what both can do once both have begun.
  double alone = 0, together = 0;
  for (int i = 0; i < 2; ++i) {
    const double latency = drives.latency_us[i] * 1e-6;
    alone = std::max(alone, batch_bytes / (latency + batch_bytes / drives.rates[i]));
  }
  const double waits =
      drives.latency_us[0] * 1e-6 * drives.rates[0] + drives.latency_us[1] * 1e-6 * drives.rates[1];
  together = std::max(alone, batch_bytes / ((batch_bytes + waits) / sum));
  const double got = batch_bytes * batches / seconds;
  CAPTURE(got, alone, together, share(run, 0));
  CHECK(got >= 0.97 * alone);  // a drive that is of no use is tried now and then
  CHECK(got >= (deep ? 0.95 : stripe ? 0.92 : 0.85) * together);
  CHECK(got <= 1.01 * together);
}

TEST_CASE("A drive that slows down gets less, and more again when it is fast again") {
  const bool stripe = GENERATE(false, true);
  CAPTURE(stripe);
  Simulation run(two_drives(0, 0), {{300e6, 1e5, 0}, {300e6, 1e5, 0}});
  const std::vector<std::uint64_t> batch(24, 864 * KiB);
  const auto share_of_second = [&](int batches) {
    run.bytes.assign(2, 0);
    for (int i = 0; i < batches; ++i) run.read(batch, stripe);
    return share(run, 1);
  };
  share_of_second(20);
  CHECK(share_of_second(20) == Approx(0.5).margin(0.06));
  run.drives[1].bytes_per_second = 30e6;
  share_of_second(60);
  CHECK(share_of_second(40) == Approx(1.0 / 11).margin(0.05));
  run.drives[1].bytes_per_second = 300e6;
  share_of_second(100);
  CHECK(share_of_second(40) == Approx(0.5).margin(0.06));
}

TEST_CASE("A drive that brought nothing for long is tried again") {
  Simulation run(two_drives(0, 0), {{300e6, 1e5, 0}, {300e6, 1e5, 0}});
  const std::vector<std::uint64_t> batch(4, 864 * KiB);
  for (int i = 0; i < 20; ++i) run.read(batch, false);
  run.drives[1].latency_ns = 5e9;  // one read that hangs for seconds
  while (run.now_ns < 5e9) run.read(batch, false);
  run.drives[1].latency_ns = 1e5;
  run.bytes.assign(2, 0);
  const double until = run.now_ns + 20e9;
  while (run.now_ns < until) run.read(batch, false);
  run.bytes.assign(2, 0);
  for (int i = 0; i < 50; ++i) run.read(batch, false);
  CHECK(share(run, 1) == Approx(0.5).margin(0.1));
}

TEST_CASE("Reads that fail fast do not make a drive look fast") {
  ReadDivision division(two_drives(100e6, 100e6), block);
  for (std::uint64_t ms = 1; ms < 2000; ++ms) {
    division.begin(ms * 1'000'000);
    division.sent(1, 1 * MiB);
    division.ended(1, 1 * MiB, false);
    division.sent(0, 100'000);
    division.ended(0, 100'000, true);
  }
  CHECK(division.bytes_per_second(0) == Approx(100e6).epsilon(0.05));
  CHECK(division.bytes_per_second(1) < 10e6);
}

TEST_CASE("The parts of a range are its bytes, whatever drives and loads") {
  std::mt19937_64 random(11);
  for (int run = 0; run < 200; ++run) {
    const auto count = static_cast<std::uint32_t>(1 + random() % ReadDivision::drives_max);
    std::vector<ReadDivision::Drive> drives;
    for (std::uint32_t i = 0; i < count; ++i)
      drives.push_back({1 + static_cast<std::uint32_t>(random() % 4), (1 + random() % 64) * block,
                        static_cast<double>(random() % 3 * 100'000'000)});
    ReadDivision division(drives, block);
    const bool stripe = random() % 2 == 0;
    std::uint64_t now = 1;
    std::vector<ReadDivision::Part> flying;
    for (int range = 0; range < 20; ++range) {
      std::uint64_t rest = (1 + random() % 500) * block + (random() % 2) * (random() % block);
      while (rest > 0) {
        division.begin(now += random() % 3'000'000);
        const auto among = static_cast<ReadDivision::Drives>(1 + random() % ((1u << count) - 1));
        const auto part = stripe ? division.divided(rest, among) : division.whole(rest, among);
        if (part.bytes == 0) {  // then something is in flight that will end
          REQUIRE_FALSE(flying.empty());
          const std::size_t ended = random() % flying.size();
          division.ended(flying[ended].drive, flying[ended].bytes, true);
          flying.erase(flying.begin() + static_cast<std::ptrdiff_t>(ended));
          continue;
        }
        REQUIRE((among >> part.drive & 1) == 1);
        REQUIRE(part.bytes <= rest);
        if (stripe) REQUIRE(part.bytes <= drives[part.drive].piece_bytes);
        else REQUIRE(2 * part.bytes < 3 * drives[part.drive].piece_bytes + 2 * block);
        REQUIRE((part.bytes == rest || part.bytes % block == 0));
        division.sent(part.drive, part.bytes);
        flying.push_back(part);
        rest -= part.bytes;
      }
    }
  }
}
