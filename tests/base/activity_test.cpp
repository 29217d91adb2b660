#include "runtime/base/activity.h"

#include <catch2/catch.hpp>

using namespace millrace;

namespace {

struct HandClock final : Clock {
  std::uint64_t ns = 1000;
  std::uint64_t now_ns() noexcept override { return ns; }
};

}  // namespace

TEST_CASE("activity: every nanosecond is compute, stalled or other") {
  HandClock clock;
  ActivityClock activity(clock);
  clock.ns += 5;  // other
  activity.demand_begin();
  clock.ns += 7;  // stalled
  activity.compute_begin();
  clock.ns += 11;  // compute, overlapped
  activity.demand_end();
  clock.ns += 13;  // compute
  activity.compute_end();
  clock.ns += 17;  // other
  const ActivityTimes times = activity.times();
  CHECK(times.other_ns == 22);
  CHECK(times.stalled_ns == 7);
  CHECK(times.compute_ns == 24);
  CHECK(times.overlapped_ns == 11);
}

TEST_CASE("activity: threads and reads at once count once") {
  HandClock clock;
  ActivityClock activity(clock);
  activity.demand_begin();
  activity.demand_begin();
  {
    const ComputeScope first(activity);
    const ComputeScope second(activity);
    clock.ns += 10;
  }
  activity.demand_end();
  clock.ns += 3;  // one read is still outstanding
  activity.demand_end();
  const ActivityTimes times = activity.times();
  CHECK(times.compute_ns == 10);
  CHECK(times.overlapped_ns == 10);
  CHECK(times.stalled_ns == 3);
  CHECK(times.other_ns == 0);
}
