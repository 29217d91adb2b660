// The loader on the fake scheduler: order of reads, joining, waves, faults, shutdown.
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <deque>
#include <memory>

#include "tests/prefetch/expert_world.h"
#include "tests/support/allocation_meter.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

std::deque<Asker> askers_for(LayerIndex layer, std::uint32_t first, std::uint32_t count) {
  std::deque<Asker> made;
  for (ExpertIndex e = first; e < first + count; ++e) made.emplace_back(ExpertKey{layer, e});
  return made;
}

std::vector<Asker*> all_of(std::deque<Asker>& askers) {
  std::vector<Asker*> pointers;
  for (Asker& asker : askers) pointers.push_back(&asker);
  return pointers;
}

// Waves by hand: reads complete one by one, and who is ready lets go.
void drain(LoaderWorld& world, std::deque<Asker>& askers) {
  std::size_t released = 0;
  std::vector<bool> done(askers.size(), false);
  for (;;) {
    for (std::size_t i = 0; i < askers.size(); ++i) {
      if (done[i] || !askers[i].ready()) continue;
      CHECK(world.bytes_are_right(askers[i]));
      world.release(askers[i]);
      done[i] = true;
      ++released;
    }
    if (released == askers.size()) break;
    if (!world.scheduler.step()) {
      for (const bool d : done)
        if (!d) FAIL("no read is queued, yet requests wait");
      break;
    }
  }
}

}  // namespace

TEST_CASE("loader: gate and up of all missing experts are submitted before any down") {
  LoaderWorld world(equal_extents(2, 8), 8, 4);
  auto askers = askers_for(1, 0, 4);
  world.ask(all_of(askers));
  const auto& log = world.scheduler.log();
  REQUIRE(log.size() == 4 * world.layout.at({1, 0}).read_count);
  bool down_seen = false;
  std::size_t downs = 0;
  for (const FakeScheduler::Submitted& read : log) {
    const bool down = read.priority == ReadPriority::demand_rest;
    CHECK_FALSE((down_seen && !down));
    CHECK((down || read.priority == ReadPriority::demand_first));
    down_seen = down_seen || down;
    downs += down ? 1 : 0;
  }
  CHECK(downs == 4);
  drain(world, askers);
}

TEST_CASE("loader: that order holds for more reads than one hand-over takes") {
  LoaderWorld world(equal_extents(1, 128), 128, 4);
  auto askers = askers_for(0, 0, 128);
  world.ask(all_of(askers));
  const auto& log = world.scheduler.log();
  REQUIRE(log.size() == 3 * 128);
  for (std::size_t i = 0; i < log.size(); ++i)
    CHECK((log[i].priority == ReadPriority::demand_rest) == (i >= 256));
  drain(world, askers);
}

TEST_CASE("loader: slices are told as they land, each once, with the right bytes") {
  LoaderWorld world(equal_extents(1, 4), 4, 2);
  Asker asker({0, 2});
  world.ask({&asker});
  CHECK(asker.calls == 0);
  CHECK_FALSE(asker.request.hit);
  REQUIRE(world.scheduler.step());
  CHECK(asker.bits == slice_gate);
  CHECK(LoaderWorld::same(asker.request.gate, world.extents.at({0, 2}).gate));
  REQUIRE(world.scheduler.step());
  CHECK(asker.bits == (slice_gate | slice_up));
  REQUIRE(world.scheduler.step());
  CHECK(asker.ready());
  CHECK(asker.calls == 3);
  CHECK_FALSE(asker.repeated);
  CHECK(world.bytes_are_right(asker));
  world.release(asker);
}

TEST_CASE("loader: a slice whose scales lie apart is told when codes and scales have landed") {
  const auto slice = [](std::uint64_t codes, std::uint64_t scales) {
    return MatrixExtent{.type = DType::fp4,
                        .offset_bytes = codes,
                        .row_bytes = 512,
                        .rows = 8,
                        .columns = 1024,
                        .scales = {ScaleType::e8m0, 0, scales, 32, 8}};
  };
  std::vector<ExpertExtent> row(
      4, {slice(96, 1 << 20), slice(10000, 2 << 20), slice(30000, 30000 + 4096)});
  LoaderWorld world(ExpertExtents({row}), 4, 2);
  Asker asker({0, 2});
  world.ask({&asker});
  CHECK(world.scheduler.queued() == 5);  // down's scales are its neighbours
  for (const unsigned bits :
       {0u, 0u, unsigned{slice_gate}, slice_gate | slice_up, 0u | slice_all}) {
    REQUIRE(world.scheduler.step());
    CHECK(asker.bits == bits);
  }
  CHECK_FALSE(asker.repeated);
  const ExpertRequest& request = asker.request;
  const auto same = [](const std::byte* data, std::uint64_t offset, std::uint64_t bytes) {
    for (std::uint64_t i = 0; i < bytes; ++i)
      if (data[i] != pattern_byte(0, offset + i)) return false;
    return true;
  };
  CHECK(same(request.gate, 96, 4096));
  CHECK(same(request.gate_scales, 1 << 20, 256));
  CHECK(same(request.up, 10000, 4096));
  CHECK(same(request.up_scales, 2 << 20, 256));
  CHECK(same(request.down, 30000, 4096 + 256));
  CHECK(request.down_scales == request.down + 4096);
  world.release(asker);
  Asker plain({0, 1});
  world.scheduler.set_fault(0, 2 << 20, EIO, 1);
  world.ask({&plain});
  world.scheduler.run();
  CHECK_THAT(plain.failure, Catch::Contains("expert 1 up"));
  world.release(plain);
}

TEST_CASE("loader: hits are called back from inside request, while misses load") {
  LoaderWorld world(equal_extents(1, 8), 4, 4);
  world.use({0, 1});
  Asker miss({0, 0});
  Asker hit({0, 1});
  world.ask({&miss, &hit});
  CHECK(hit.ready());
  CHECK(hit.calls == 1);
  CHECK(hit.request.hit);
  CHECK(world.bytes_are_right(hit));
  CHECK(miss.calls == 0);
  CHECK(world.scheduler.queued() == 3);
  world.release(hit);
  world.scheduler.run();
  CHECK(miss.ready());
  world.release(miss);
}

TEST_CASE("loader: what is here is claimed together and at once, or nothing happens") {
  LoaderWorld world(equal_extents(1, 8), 4, 2);
  world.use({0, 1});
  world.use({0, 2});
  Asker one({0, 1}), two({0, 2}), absent({0, 3});
  const LoaderStats before = world.loader->stats();
  const std::array<ExpertRequest*, 3> all = {&one.request, &absent.request, &two.request};
  CHECK_FALSE(world.loader->request_if_here(all));
  CHECK(world.loader->stats().hits == before.hits);
  CHECK(world.loader->stats().misses == before.misses);
  CHECK(world.scheduler.queued() == 0);
  const std::array<ExpertRequest*, 2> here = {&one.request, &two.request};
  REQUIRE(world.loader->request_if_here(here));
  CHECK(world.loader->stats().hits == before.hits + 2);
  CHECK(one.calls == 0);
  CHECK(one.request.hit);
  one.bits = two.bits = slice_all;  // as if told
  CHECK(world.bytes_are_right(one));
  CHECK(world.bytes_are_right(two));
  // Claimed: two misses take the other slots and leave these alone.
  Asker other({0, 4}), another({0, 5});
  world.ask({&other, &another});
  CHECK_FALSE(world.loader->request_if_here(all));
  world.scheduler.run();
  CHECK(world.loader->cache().state({0, 1}) == ExpertCache::State::in_use);
  for (Asker* asker : {&one, &two, &other, &another}) world.release(*asker);
  CHECK(world.loader->cache().state({0, 1}) == ExpertCache::State::ready);
}

TEST_CASE("loader: a miss does not evict an expert that the same call wants") {
  LoaderWorld world(equal_extents(1, 8), 2, 2);
  world.use({0, 0});
  world.use({0, 1});
  Asker miss({0, 5});
  Asker hit({0, 0});  // the least recently used
  world.ask({&miss, &hit});
  CHECK(hit.request.hit);
  world.scheduler.run();
  CHECK(miss.ready());
  world.release(miss);
  world.release(hit);
  CHECK_FALSE(world.use({0, 1}));
}

TEST_CASE("loader: requests for one expert share one load, and late ones hear what they missed") {
  LoaderWorld world(equal_extents(1, 4), 4, 2);
  Asker first({0, 0});
  Asker twin({0, 0});
  Asker late({0, 0});
  world.ask({&first, &twin});
  CHECK(world.scheduler.queued() == 3);
  world.scheduler.step();
  world.ask({&late});
  CHECK(world.scheduler.queued() == 2);
  CHECK(late.calls == 0);
  world.scheduler.step();
  CHECK(late.bits == (slice_gate | slice_up));
  CHECK(late.calls == 1);
  CHECK(twin.calls == 2);
  world.scheduler.run();
  for (Asker* asker : {&first, &twin, &late}) {
    CHECK(asker->ready());
    CHECK_FALSE(asker->request.hit);
    CHECK(world.bytes_are_right(*asker));
    world.release(*asker);
  }
  const LoaderStats stats = world.loader->stats();
  CHECK(stats.misses == 3);
  CHECK(stats.joined == 2);
  CHECK(stats.loads == 1);
  CHECK(stats.demanded_bytes == world.layout.at({0, 0}).read_bytes());
  CHECK(world.use({0, 0}));
}

TEST_CASE("loader: any number of experts at once goes through top-k slots, in order of arrival") {
  for (std::uint32_t slots = 1; slots <= 5; ++slots) {
    for (std::uint32_t count = 1; count <= 24; ++count) {
      LoaderWorld world(equal_extents(2, 24), slots, std::min(slots, 2u));
      auto askers = askers_for(1, 0, count);
      world.ask(all_of(askers));
      drain(world, askers);
      const LoaderStats stats = world.loader->stats();
      CHECK(stats.waits == (count > slots ? count - slots : 0));
      CHECK(stats.loads == count);
      const auto& log = world.scheduler.log();
      std::uint64_t last_gate = 0;  // gates lie in the file in order of experts
      for (const FakeScheduler::Submitted& read : log) {
        if (read.offset_bytes >= world.layout.at({1, 0}).reads[1].offset_bytes) continue;
        CHECK(read.offset_bytes >= last_gate);
        last_gate = read.offset_bytes;
      }
    }
  }
}

TEST_CASE("loader: a waiting request joins the load of an earlier one in the queue") {
  LoaderWorld world(equal_extents(1, 8), 1, 1);
  Asker holder({0, 0});
  world.ask({&holder});
  world.scheduler.run();
  Asker first({0, 1});
  Asker other({0, 2});
  Asker twin({0, 1});
  world.ask({&first, &other, &twin});
  CHECK(world.loader->stats().waits == 3);
  world.release(holder);
  world.scheduler.run();
  CHECK(first.ready());
  CHECK(twin.ready());
  CHECK_FALSE(other.ready());
  world.release(first);
  CHECK(world.scheduler.queued() == 0);  // the twin still holds the slot
  world.release(twin);
  world.scheduler.run();
  CHECK(other.ready());
  world.release(other);
  CHECK(world.loader->stats().joined == 1);
}

TEST_CASE(
    "loader: a failed read fails all who share it, names the place, and the next one retries") {
  LoaderWorld world(equal_extents(2, 4), 2, 1);
  const std::uint64_t at = world.layout.at({1, 3}).reads[1].offset_bytes;
  world.scheduler.set_fault(0, at, EIO, 1);
  Asker first({1, 3});
  Asker twin({1, 3});
  Asker other({1, 2});
  world.ask({&first, &twin, &other});
  world.scheduler.run();
  for (Asker* asker : {&first, &twin}) {
    CHECK(asker->bits == slice_gate);
    CHECK(asker->failure.find("model.gguf: layer 1 expert 3 up: offset " + std::to_string(at)) !=
          std::string::npos);
    CHECK(asker->failure.find("EIO") != std::string::npos);
    CHECK(asker->request.failure->code == ErrorCode::io);
  }
  CHECK(other.ready());
  Asker again({1, 3});
  world.ask({&again});
  CHECK(world.scheduler.queued() == 0);  // both slots are still held
  world.release(first);
  world.release(twin);
  world.scheduler.run();
  CHECK(again.ready());
  CHECK(world.bytes_are_right(again));
  world.release(again);
  world.release(other);
  CHECK(world.loader->stats().failures == 1);
}

TEST_CASE("loader: a failed expert's slot is not reused while its other reads are on their way") {
  LoaderWorld world(equal_extents(1, 4), 1, 1);
  world.scheduler.set_fault(0, world.layout.at({0, 0}).reads[0].offset_bytes, EIO, 1);
  Asker failing({0, 0});
  Asker waiting({0, 1});
  world.ask({&failing, &waiting});
  REQUIRE(world.scheduler.step());
  REQUIRE_FALSE(failing.failure.empty());
  world.release(failing);
  CHECK(world.scheduler.queued() == 2);  // up and down of the failed expert
  REQUIRE(world.scheduler.step());
  CHECK(world.scheduler.queued() == 1);
  REQUIRE(world.scheduler.step());
  CHECK(world.scheduler.queued() == 3);
  world.scheduler.run();
  CHECK(world.bytes_are_right(waiting));
  world.release(waiting);
}

TEST_CASE("loader: every slice's failure is told, whichever comes first") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    FakeSchedulerOptions options;
    options.seed = seed;
    LoaderWorld world(equal_extents(1, 4), 2, 2, 512, options);
    for (std::uint32_t i = 0; i < 3; ++i)
      if (((seed >> i) & 1) != 0)
        world.scheduler.set_fault(0, world.layout.at({0, 1}).reads[i].offset_bytes, EIO, 1);
    Asker asker({0, 1});
    world.ask({&asker});
    world.scheduler.run();
    CHECK(asker.ready() == ((seed & 7) == 0));
    CHECK(asker.failure.empty() == ((seed & 7) == 0));
    world.release(asker);
    CHECK(world.use({0, 1}) == ((seed & 7) == 0));
  }
}

TEST_CASE("loader: a file that was truncated meanwhile says so") {
  LoaderWorld world(equal_extents(1, 4), 2, 1);
  REQUIRE(truncate(world.file.path().c_str(), 0) == 0);
  world.scheduler.set_file_bytes(0, world.layout.at({0, 3}).reads[2].offset_bytes);
  Asker whole({0, 0});
  Asker cut({0, 3});
  world.ask({&whole, &cut});
  world.scheduler.run();
  CHECK(whole.ready());
  CHECK(cut.failure.find("layer 0 expert 3 down") != std::string::npos);
  CHECK(cut.failure.find("truncated from 1 to 0 bytes") != std::string::npos);
  world.release(whole);
  world.release(cut);
}

TEST_CASE("loader: the last block may reach past the end of the file") {
  const ExpertExtents extents = equal_extents(1, 4);
  FakeSchedulerOptions options;
  options.file_bytes = {end_of_last_slice(extents)};
  LoaderWorld world(extents, 2, 1, 4096, options);
  CHECK_FALSE(world.use({0, 3}));
  CHECK(world.use({0, 3}));
}

TEST_CASE("loader: requests may be given back before anything arrived") {
  LoaderWorld world(equal_extents(1, 8), 1, 1);
  Asker loading({0, 0});
  Asker joined({0, 0});
  Asker waiting({0, 1});
  Asker last({0, 2});
  world.ask({&loading, &joined, &waiting, &last});
  world.scheduler.step();
  world.release(loading);
  world.release(waiting);
  world.release(joined);
  CHECK(loading.bits == slice_gate);
  while (!last.ready()) REQUIRE(world.scheduler.step());
  CHECK(joined.bits == slice_gate);
  CHECK(waiting.calls == 0);
  world.release(last);
  CHECK(world.loader->stats().loads == 2);
}

TEST_CASE("loader: an expert whose askers left stays cached") {
  LoaderWorld world(equal_extents(1, 8), 2, 1);
  Asker asker({0, 0});
  world.ask({&asker});
  world.release(asker);
  world.scheduler.run();
  CHECK(asker.calls == 0);
  CHECK(world.use({0, 0}));
}

namespace {

struct ReleasingAsker {
  ExpertRequest request;
  Loader* loader = nullptr;
  bool done = false;
};

void release_when_ready(ExpertRequest& request, unsigned) {
  auto& self = *static_cast<ReleasingAsker*>(request.owner);
  if (request.reported_bits != slice_all) return;
  self.done = true;
  self.loader->release(request);
}

}  // namespace

TEST_CASE("loader: callbacks may release, of hits and misses, while others wait for their slot") {
  LoaderWorld world(equal_extents(1, 16), 2, 2);
  for (int round = 0; round < 3; ++round) {
    std::deque<ReleasingAsker> askers(16);
    std::vector<ExpertRequest*> requests;
    for (ExpertIndex e = 0; e < 16; ++e) {
      askers[e].loader = &*world.loader;
      askers[e].request.key = {0, e};
      askers[e].request.owner = &askers[e];
      askers[e].request.on_ready = release_when_ready;
      requests.push_back(&askers[e].request);
    }
    world.loader->request(requests);
    world.scheduler.run();
    for (const ReleasingAsker& asker : askers) CHECK(asker.done);
  }
  CHECK(world.loader->stats().hits == 4);
}

TEST_CASE("loader: destruction takes queued reads back; nobody is called afterwards") {
  LoaderWorld world(equal_extents(1, 8), 2, 2);
  auto askers = askers_for(0, 0, 6);
  world.ask(all_of(askers));
  world.scheduler.step();
  world.loader.reset();
  CHECK(world.scheduler.queued() == 0);
  unsigned calls = 0;
  for (const Asker& asker : askers) calls += asker.calls;
  CHECK(calls == 1);
}

namespace {

class ManualClock final : public Clock {
 public:
  std::uint64_t now_ns() noexcept override { return now; }
  std::uint64_t now = 0;
};

}  // namespace

TEST_CASE("loader: a demanded read is outstanding from the hand-over until its last byte") {
  ManualClock clock;
  LoaderWorld world(equal_extents(1, 8), 2, 2);
  new (&world.activity) ActivityClock(clock);
  clock.now = 10;
  Asker asker({0, 0});
  world.ask({&asker});
  for (int i = 0; i < 3; ++i) {
    clock.now += 5;
    world.scheduler.step();
  }
  clock.now += 100;
  world.release(asker);
  world.use({0, 0});
  const ActivityTimes times = world.activity.times();
  CHECK(times.stalled_ns == 15);
  CHECK(times.other_ns == 110);
}

TEST_CASE("loader: stats of a phase are the difference of two snapshots") {
  LoaderWorld world(equal_extents(2, 8), 4, 2);
  world.use({0, 0});
  const LoaderStats before = world.loader->stats();
  world.use({0, 0});
  world.use({1, 1});
  const LoaderStats phase = world.loader->stats() - before;
  CHECK(phase.hits == 1);
  CHECK(phase.misses == 1);
  CHECK(phase.demanded_bytes == world.layout.at({1, 1}).read_bytes());
  CHECK(phase.bytes_by_layer == std::vector<std::uint64_t>{0, phase.demanded_bytes});
  CHECK(phase.evictions == 0);
}

TEST_CASE("loader: requests, completions and releases allocate nothing") {
  FakeSchedulerOptions options;
  options.log_max = 0;
  LoaderWorld world(equal_extents(4, 16), 12, 4, 512, options);
  auto askers = askers_for(0, 0, 8);
  std::vector<ExpertRequest*> requests;
  for (Asker& asker : askers) requests.push_back(&asker.request);
  reset_allocations();
  for (std::uint32_t round = 0; round < 50; ++round) {
    for (std::uint32_t i = 0; i < 8; ++i) {
      askers[i].request.key = {round % 4, (i + round / 4) % 16};
      askers[i].bits = 0;
    }
    world.loader->request(requests);
    for (std::size_t released = 0; released < 8;) {
      world.scheduler.step();
      for (Asker& asker : askers) {
        if (!asker.ready()) continue;
        world.release(asker);
        asker.bits = 0;
        ++released;
      }
    }
  }
  CHECK(allocations().calls == 0);
  CHECK(world.loader->stats().evictions > 0);
  CHECK(world.loader->stats().hits > 0);
}
