// A pool that shrinks and grows while it is used: what stays, what waits, and that nothing is lost.
#include <catch2/catch.hpp>
#include <deque>
#include <random>

#include "tests/prefetch/expert_world.h"

using namespace millrace;
using namespace millrace::testing;
using State = ExpertCache::State;

namespace {

constexpr SliceBytes small{64, 64, 96};

// A cache alone, with slots that tests give up by number.
struct Slots {
  Slots(std::uint32_t layers, std::uint32_t experts, std::uint64_t slots, std::uint32_t top_k,
        const char* policy = "lru", std::uint32_t spares = 0)
      : layout(equal_extents(layers, experts, small), std::vector<std::uint32_t>{1}),
        plan(plan_of(layout, slots, top_k)),
        cache(layout, plan, top_k, make_eviction_policy(policy).value(), spares) {}

  // Asked, loaded if absent; stays claimed.
  SlotIndex hold(ExpertKey key) {
    cache.begin(key.layer, 1);
    SlotIndex slot = cache.ask(key).slot;
    if (slot != no_slot) return slot;
    slot = cache.assign(key);
    REQUIRE(slot != no_slot);
    cache.finish(slot);
    return slot;
  }
  void use(ExpertKey key) { cache.release(hold(key)); }
  std::uint32_t retired() const {
    std::uint32_t count = 0;
    for (std::uint32_t slot = 0; slot < cache.slots(); ++slot)
      count += cache.retired(static_cast<SlotIndex>(slot)) ? 1 : 0;
    return count;
  }

  SlotLayout layout;
  SlotPlan plan;
  ExpertCache cache;
};

// A loader over four slots a segment, 16 experts in each of three layers, top-2.
struct SegmentWorld : LoaderWorld {
  explicit SegmentWorld(std::uint64_t slots = 16, FakeSchedulerOptions options = {},
                        const char* policy = "lru", std::uint32_t spares = 0)
      : LoaderWorld(equal_extents(3, 16, small), slots, 2, 512, options, {}, 4 * 4096) {
    loader.emplace(LoaderParts{.layout = layout,
                               .plan = plan,
                               .blocks = blocks,
                               .files = files,
                               .scheduler = scheduler,
                               .activity = activity,
                               .top_k = 2,
                               .policy = make_eviction_policy(policy).value(),
                               .spares = spares});
    REQUIRE(layout.classes().back().slot_bytes == 4096);
    REQUIRE(loader->segments().size() == (slots + 3) / 4);
  }
  const PoolSegment& segment(std::size_t index) const { return loader->segments()[index]; }
  // Gives the memory of a vacated segment away and takes it back: whatever was there is zero.
  void change_memory(const PoolSegment& of) {
    REQUIRE(loader->vacated(of));
    REQUIRE(memory.give_back(of.buffer));
    REQUIRE(memory.take_again(of.buffer));
  }
};

}  // namespace

TEST_CASE("resize: empty and idle slots leave at once, and what was in them is absent") {
  Slots world(1, 16, 8, 2);
  for (ExpertIndex e = 0; e < 6; ++e) world.use({0, e});
  world.cache.retire(4, 4);  // two experts and two empty slots
  CHECK(world.retired() == 4);
  CHECK(world.cache.slots(0) == 4);
  std::uint32_t here = 0;
  for (ExpertIndex e = 0; e < 6; ++e) here += world.cache.state({0, e}) == State::ready ? 1 : 0;
  CHECK(here == 4);
  CHECK(world.cache.counters().evictions == 2);
  for (ExpertIndex e = 6; e < 16; ++e) world.use({0, e});  // in the slots that are left
  CHECK(world.cache.counters().evictions == 12);
  world.cache.restore(4, 4);
  CHECK(world.retired() == 0);
  for (ExpertIndex e = 0; e < 4; ++e) world.use({0, e});
  CHECK(world.cache.counters().evictions == 12);
}

TEST_CASE("resize: claimed and loading slots leave when the last claim or load is gone") {
  Slots world(1, 16, 4, 2);
  const SlotIndex claimed = world.hold({0, 0});
  world.cache.ask({0, 1});
  const SlotIndex loading = world.cache.assign({0, 1});
  world.cache.ask({0, 2});
  const SlotIndex failing = world.cache.assign({0, 2});
  world.cache.fail(failing);
  REQUIRE((claimed == 0 && loading == 1 && failing == 2));
  SECTION("in the order of release") {
    world.cache.retire(0, 2);
    CHECK(world.retired() == 0);
    CHECK(world.cache.ask({0, 0}).hit);  // still there, claimed once more
    CHECK_FALSE(world.cache.release(claimed));
    CHECK(world.cache.state({0, 0}) == State::in_use);
    CHECK_FALSE(world.cache.release(claimed));
    CHECK(world.cache.retired(claimed));
    CHECK(world.cache.state({0, 0}) == State::absent);
    CHECK_FALSE(world.cache.release(loading));  // its asker left, the read goes on
    CHECK_FALSE(world.cache.retired(loading));
    CHECK_FALSE(world.cache.finish(loading));
    CHECK(world.cache.retired(loading));
  }
  SECTION("a failed load too") {
    world.cache.retire(2, 2);
    CHECK(world.cache.retired(3));
    CHECK_FALSE(world.cache.finish(failing));
    CHECK_FALSE(world.cache.retired(failing));
    CHECK_FALSE(world.cache.release(failing));
    CHECK(world.cache.retired(failing));
    world.cache.restore(2, 2);
    world.use({0, 2});
  }
}

TEST_CASE("resize: floors follow, so that a layer finds slots in a small pool that others fill") {
  for (const char* const policy : eviction_policy_names()) {
    INFO(policy);
    Slots world(8, 8, 32, 2, policy);  // every layer may keep two
    for (LayerIndex layer = 0; layer < 7; ++layer)
      for (ExpertIndex e = 0; e < 4; ++e) world.use({layer, e});
    world.cache.retire(2, 30);
    // The last layer has nothing, and must get both slots though all others want theirs.
    const SlotIndex first = world.hold({7, 0});
    const SlotIndex second = world.hold({7, 1});
    world.cache.release(first);
    world.cache.release(second);
    for (LayerIndex layer = 0; layer < 8; ++layer) world.use({layer, 5});
    world.cache.restore(2, 30);
    for (LayerIndex layer = 0; layer < 8; ++layer)
      for (ExpertIndex e = 0; e < 4; ++e) world.use({layer, e});
  }
}

TEST_CASE("resize: spares that leave are made up for by others, and their number stays") {
  Slots world(2, 16, 12, 2, "lru", 3);
  REQUIRE(world.cache.spares(0).size() == 3);
  CHECK(world.cache.slots_least(0) == 2 + 3);
  for (ExpertIndex e = 0; e < 9; ++e) world.use({0, e});
  const SlotIndex loading = world.cache.guess({1, 0});
  const SlotIndex ready = world.cache.guess({1, 1});
  REQUIRE((loading != no_slot && ready != no_slot));
  world.cache.finish(ready);
  world.cache.retire(0, 7);
  for (const SlotIndex spare : world.cache.spares(0))
    if (spare != no_slot) CHECK((spare >= 7 || spare == loading));
  if (loading < 7) CHECK_FALSE(world.cache.retired(loading));
  world.cache.finish(loading);
  for (SlotIndex slot = 0; slot < 7; ++slot) CHECK(world.cache.retired(slot));
  std::uint32_t spares = 0;
  for (const SlotIndex spare : world.cache.spares(0)) spares += spare >= 7 ? 1 : 0;
  CHECK(spares == 3);
  REQUIRE(world.cache.guess({1, 5}) != no_slot);
  world.cache.restore(0, 7);
  for (ExpertIndex e = 0; e < 9; ++e) world.use({0, e});
}

TEST_CASE("resize: a guess that is asked for while its slot leaves is used and then gone") {
  Slots world(1, 16, 12, 2, "lru", 3);
  const SlotIndex guess = world.cache.guess({0, 4});
  world.cache.retire(0, 7);
  REQUIRE(guess < 7);
  const ExpertCache::Asked asked = world.cache.ask({0, 4});
  REQUIRE(asked.slot == guess);
  world.cache.finish(guess);
  CHECK_FALSE(world.cache.retired(guess));
  world.cache.release(guess);
  CHECK(world.cache.retired(guess));
  CHECK(world.cache.state({0, 4}) == State::absent);
}

TEST_CASE("resize: a segment goes when nothing is claimed in it or read into it, not before") {
  SegmentWorld world;
  Asker used({0, 0}), coming({0, 1});
  world.ask({&used});
  world.scheduler.run();
  world.ask({&coming});
  const PoolSegment& first = world.segment(0);
  REQUIRE(world.loader->retire(first));
  CHECK_FALSE(world.loader->vacated(first));
  world.release(used);
  CHECK_FALSE(world.loader->vacated(first));
  world.scheduler.run();
  CHECK(coming.ready());
  CHECK(world.bytes_are_right(coming));
  CHECK_FALSE(world.loader->vacated(first));
  world.release(coming);
  CHECK(world.loader->vacated(first));
  world.change_memory(first);
  world.loader->restore(first);
  CHECK_FALSE(world.use({0, 0}));
}

TEST_CASE("resize: with everything claimed nothing leaves until claims are dropped") {
  SegmentWorld world;
  std::deque<Asker> askers;
  std::vector<Asker*> all;
  for (ExpertIndex e = 0; e < 16; ++e) all.push_back(&askers.emplace_back(ExpertKey{0, e}));
  world.ask(all);
  world.scheduler.run();
  for (std::size_t i = 1; i < 4; ++i) REQUIRE(world.loader->retire(world.segment(i)));
  std::deque<Asker> waiting;
  for (ExpertIndex e = 0; e < 3; ++e) world.ask({&waiting.emplace_back(ExpertKey{1, e})});
  for (std::size_t i = 1; i < 4; ++i) CHECK_FALSE(world.loader->vacated(world.segment(i)));
  for (Asker& asker : askers) {
    CHECK(world.bytes_are_right(asker));
    world.release(asker);
  }
  for (std::size_t i = 1; i < 4; ++i) CHECK(world.loader->vacated(world.segment(i)));
  world.scheduler.run();
  for (Asker& asker : waiting) {
    CHECK(world.bytes_are_right(asker));
    world.release(asker);
  }
}

TEST_CASE("resize: the smallest cache stays") {
  SegmentWorld world(6);
  REQUIRE(world.segment(1).slots == 2);
  CHECK(world.loader->retire(world.segment(0)));
  CHECK_FALSE(world.loader->retire(world.segment(1)));
  world.loader->restore(world.segment(0));
  CHECK(world.loader->retire(world.segment(1)));
  CHECK_FALSE(world.loader->retire(world.segment(0)));
  SegmentWorld guessing(12, {}, "lru", 4);
  CHECK(guessing.loader->retire(guessing.segment(2)));
  CHECK_FALSE(guessing.loader->retire(guessing.segment(1)));  // two to use, four to guess into
}

TEST_CASE("resize: a request that waited gets a slot when the pool grows") {
  SegmentWorld world(8);
  REQUIRE(world.loader->retire(world.segment(1)));
  std::deque<Asker> askers;
  for (ExpertIndex e = 0; e < 6; ++e) world.ask({&askers.emplace_back(ExpertKey{0, e})});
  world.scheduler.run();
  CHECK(askers[3].ready());
  CHECK_FALSE(askers[4].ready());
  world.change_memory(world.segment(1));
  world.loader->restore(world.segment(1));
  world.scheduler.run();
  for (Asker& asker : askers) {
    CHECK(world.bytes_are_right(asker));
    world.release(asker);
  }
}

TEST_CASE("resize: guesses that were not begun are taken back, others end first") {
  SegmentWorld world(16, {}, "lru", 4);
  const std::vector<ExpertIndex> guesses = {1, 2};
  world.loader->suggest(1, guesses);
  std::size_t at = 0;  // the spares lie in the first segment
  const PoolSegment& segment = world.segment(at);
  const std::size_t reads = world.scheduler.queued();
  REQUIRE(reads == std::size_t{2} * world.layout.at({1, 1}).read_count);
  SECTION("none begun") {
    REQUIRE(world.loader->retire(segment));
    CHECK(world.loader->vacated(segment));
    CHECK(world.scheduler.queued() == 0);
    CHECK(world.loader->stats().guessed_bytes == 0);
  }
  SECTION("all read") {
    world.scheduler.run();
    REQUIRE(world.loader->retire(segment));
    CHECK(world.loader->vacated(segment));
  }
  world.change_memory(segment);
  world.loader->restore(segment);
  world.loader->suggest(1, guesses);
  world.scheduler.run();
  CHECK(world.use({1, 1}));
}

// Everything at once: by seed, calls of several layers, releases in any order, reads that fail,
// guesses, segments that go and come back. Whoever asks is served, with the right bytes.
TEST_CASE("resize: shrinking and growing at any moment loses no request and no byte") {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    FakeSchedulerOptions options;
    options.seed = seed;
    const char* const policy = eviction_policy_names()[seed % eviction_policy_names().size()];
    const std::uint32_t spares = seed % 3 == 0 ? 3 : 0;
    SegmentWorld world(12 + seed % 13, options, policy, spares);
    std::vector<int> state(world.loader->segments().size(), 0);  // 1: leaving, 2: gone
    std::deque<Asker> askers;
    std::vector<Asker*> open;
    std::uint32_t gone = 0;
    for (int turn = 0; turn < 600 || !open.empty(); ++turn) {
      REQUIRE(turn < 20000);
      if (turn < 600 && random() % 4 == 0) {
        const auto layer = static_cast<LayerIndex>(random() % 3);
        std::vector<Asker*> call;
        for (std::uint64_t n = random() % 6 + 1; n > 0; --n)
          call.push_back(
              &askers.emplace_back(ExpertKey{layer, static_cast<ExpertIndex>(random() % 16)}));
        world.ask(call);
        open.insert(open.end(), call.begin(), call.end());
        const std::vector<ExpertIndex> guesses = {static_cast<ExpertIndex>(random() % 16)};
        if (spares > 0) world.loader->suggest((layer + 1) % 3, guesses);
      }
      const std::size_t at = random() % state.size();
      const PoolSegment& segment = world.segment(at);
      if (state[at] == 0 && random() % 8 == 0) {
        if (world.loader->retire(segment)) state[at] = 1;
      } else if (state[at] == 1 && world.loader->vacated(segment)) {
        world.change_memory(segment);
        state[at] = 2;
        ++gone;
      } else if (state[at] == 2 && random() % 8 == 0) {
        world.loader->restore(segment);
        state[at] = 0;
      }
      world.scheduler.step();
      for (std::size_t i = 0; i < open.size(); ++i) {
        Asker& asker = *open[i];
        const bool cancelled = turn < 600 && random() % 64 == 0;
        if (!asker.ready() && !cancelled) continue;
        if (asker.ready() && random() % 2 == 0) continue;
        if (asker.ready()) REQUIRE(world.bytes_are_right(asker));
        world.release(asker);
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(i--));
      }
    }
    CHECK(gone > 0);
  }
}
