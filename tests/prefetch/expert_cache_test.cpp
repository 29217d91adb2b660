// Bookkeeping of the expert cache and its LRU policy.
#include <catch2/catch.hpp>

#include "prefetch/expert_cache.h"
#include "tests/prefetch/expert_world.h"

using namespace millrace;
using namespace millrace::testing;
using State = ExpertCache::State;

namespace {

struct CacheWorld {
  CacheWorld(const ExpertExtents& extents, std::uint64_t slots, std::uint32_t top_k)
      : layout(extents, std::vector<std::uint32_t>{1}),
        plan(plan_of(layout, slots, top_k)),
        cache(layout, plan, top_k, make_eviction_policy("lru").value()) {}

  // A whole visit: asked, loaded if absent, released. Returns whether it was a hit.
  bool use(ExpertKey key) {
    const ExpertCache::Asked asked = cache.ask(key);
    SlotIndex slot = asked.slot;
    if (slot == no_slot) {
      slot = cache.assign(key);
      REQUIRE(slot != no_slot);
      cache.finish(slot);
    }
    cache.release(slot);
    return asked.hit;
  }
  // One call of a layer, as the loader makes it: those present are claimed before any is evicted.
  void use_together(LayerIndex layer, const std::vector<ExpertIndex>& experts) {
    std::vector<SlotIndex> slots;
    std::vector<ExpertKey> missing;
    for (const ExpertIndex e : experts) {
      const ExpertCache::Asked asked = cache.ask({layer, e});
      if (asked.slot == no_slot) missing.push_back({layer, e});
      else slots.push_back(asked.slot);
    }
    for (const ExpertKey key : missing) {
      slots.push_back(cache.assign(key));
      REQUIRE(slots.back() != no_slot);
      cache.finish(slots.back());
    }
    for (const SlotIndex slot : slots) cache.release(slot);
  }
  bool has(ExpertKey key) const { return cache.state(key) != State::absent; }

  SlotLayout layout;
  SlotPlan plan;
  ExpertCache cache;
};

}  // namespace

TEST_CASE("expert cache: an expert goes from absent over loading and in use to ready") {
  CacheWorld world(equal_extents(1, 4), 2, 1);
  const ExpertKey key{0, 3};
  CHECK(world.cache.state(key) == State::absent);
  CHECK(world.cache.ask(key).slot == no_slot);
  const SlotIndex slot = world.cache.assign(key);
  CHECK(world.cache.state(key) == State::loading);
  CHECK_FALSE(world.cache.finish(slot));
  CHECK(world.cache.state(key) == State::in_use);
  CHECK(world.cache.release(slot));
  CHECK(world.cache.state(key) == State::ready);
  CHECK(world.cache.ask(key).hit);
  CHECK(world.cache.state(key) == State::in_use);
}

TEST_CASE("expert cache: the least recently asked for leaves first") {
  CacheWorld world(equal_extents(1, 8), 3, 1);
  for (ExpertIndex e : {0u, 1u, 2u}) CHECK_FALSE(world.use({0, e}));
  CHECK(world.use({0, 0}));
  CHECK_FALSE(world.use({0, 3}));
  CHECK(world.has({0, 0}));
  CHECK_FALSE(world.has({0, 1}));
  CHECK(world.has({0, 2}));
  CHECK(world.cache.counters().evictions == 1);
}

TEST_CASE("expert cache: recency is the order of requests, whatever the order of releases") {
  CacheWorld world(equal_extents(1, 8), 3, 1);
  SlotIndex slots[3];
  for (ExpertIndex e = 0; e < 3; ++e) {
    world.cache.ask({0, e});
    slots[e] = world.cache.assign({0, e});
    world.cache.finish(slots[e]);
  }
  for (int e : {2, 0, 1}) world.cache.release(slots[e]);
  world.use({0, 5});
  CHECK_FALSE(world.has({0, 0}));
  world.use({0, 6});
  CHECK_FALSE(world.has({0, 1}));
  CHECK(world.has({0, 2}));
}

TEST_CASE("expert cache: claimed and loading slots are never evicted") {
  CacheWorld world(equal_extents(1, 8), 2, 1);
  world.cache.ask({0, 0});
  const SlotIndex used = world.cache.assign({0, 0});
  world.cache.finish(used);
  world.cache.ask({0, 1});
  const SlotIndex loading = world.cache.assign({0, 1});
  CHECK(world.cache.assign({0, 2}) == no_slot);
  CHECK_FALSE(world.cache.release(loading));  // its asker left, the read goes on
  CHECK(world.cache.assign({0, 2}) == no_slot);
  CHECK(world.cache.finish(loading));
  CHECK(world.cache.assign({0, 2}) == loading);
  CHECK(world.cache.state({0, 0}) == State::in_use);
}

TEST_CASE("expert cache: a second claim keeps the slot after the first is dropped") {
  CacheWorld world(equal_extents(1, 8), 1, 1);
  world.cache.ask({0, 0});
  const SlotIndex slot = world.cache.assign({0, 0});
  CHECK_FALSE(world.cache.ask({0, 0}).hit);  // joined
  world.cache.finish(slot);
  CHECK_FALSE(world.cache.release(slot));
  CHECK(world.cache.assign({0, 1}) == no_slot);
  CHECK(world.cache.release(slot));
  CHECK(world.cache.assign({0, 1}) == slot);
  const CacheCounters& counters = world.cache.counters();
  CHECK(counters.misses == 2);
  CHECK(counters.joined == 1);
  CHECK(counters.hits == 0);
}

TEST_CASE("expert cache: a failed load is absent at once, its slot free when all claims are gone") {
  CacheWorld world(equal_extents(1, 8), 1, 1);
  world.cache.ask({0, 0});
  const SlotIndex slot = world.cache.assign({0, 0});
  world.cache.fail(slot);
  CHECK(world.cache.state({0, 0}) == State::absent);
  CHECK(world.cache.assign({0, 0}) == no_slot);
  CHECK_FALSE(world.cache.finish(slot));
  CHECK(world.cache.assign({0, 0}) == no_slot);
  CHECK(world.cache.release(slot));
  CHECK(world.cache.assign({0, 0}) == slot);
}

TEST_CASE("expert cache: below one token's experts, where plain LRU hits nothing, floors do") {
  const std::uint32_t layers = 10;
  CacheWorld world(equal_extents(layers, 8), 24, 4);  // one token asks for 40
  std::uint64_t hits = 0;
  for (int token = 0; token < 5; ++token) {
    hits = world.cache.counters().hits;
    for (LayerIndex l = 0; l < layers; ++l) world.use_together(l, {0, 1, 2, 3});
  }
  CHECK(world.cache.counters().hits - hits == 22);  // of the last token: the sum of the floors
}

TEST_CASE("expert cache: a layer at its floor keeps its experts against other layers") {
  // 2 layers, 6 slots, top-2: floor 2 for each
  CacheWorld world(equal_extents(2, 16), 6, 2);
  world.use({0, 0});
  world.use({0, 1});
  for (ExpertIndex e = 0; e < 16; ++e) world.use({1, e});
  CHECK(world.has({0, 0}));
  CHECK(world.has({0, 1}));
  world.use({0, 0});
  world.use({0, 1});
  world.use({0, 2});  // its own are younger now: the oldest of layer 1, above its floor, leaves
  CHECK(world.has({0, 0}));
  CHECK_FALSE(world.has({1, 12}));
}

TEST_CASE("expert cache: above the floor the globally oldest leaves, whichever its layer") {
  CacheWorld world(equal_extents(3, 16), 9, 1);  // floor 1
  for (ExpertIndex e = 0; e < 3; ++e)
    for (LayerIndex l = 0; l < 3; ++l) world.use({l, e});
  world.use({0, 0});
  world.use({2, 9});  // oldest: (1, 0)
  CHECK_FALSE(world.has({1, 0}));
  world.use({0, 9});  // then (2, 0)
  CHECK_FALSE(world.has({2, 0}));
  world.use({0, 10});  // then (0, 1)
  CHECK_FALSE(world.has({0, 1}));
  CHECK(world.has({0, 0}));
}

TEST_CASE("expert cache: the floor does not protect a layer from its own requests") {
  CacheWorld world(equal_extents(2, 16), 3, 1);  // both floors are 1
  world.use({0, 0});
  world.use({1, 0});
  world.use({1, 1});
  world.use({0, 1});  // (0, 0) is the oldest of all
  CHECK_FALSE(world.has({0, 0}));
  CHECK(world.has({1, 0}));
  CHECK(world.has({1, 1}));
}

TEST_CASE("expert cache: classes do not evict each other") {
  const SliceBytes small{4096, 4096, 4096};
  const SliceBytes large{8192, 8192, 16384};
  CacheWorld world(merged_extents({small, large}, 8), 5, 2);
  REQUIRE(world.cache.groups() == 2);
  world.use({0, 0});
  for (ExpertIndex e = 0; e < 8; ++e) world.use({1, e});
  CHECK(world.has({0, 0}));
}

TEST_CASE("expert cache: in merged classes an expert of the small class takes a large slot") {
  const SliceBytes small{4096, 4096, 4096};
  const SliceBytes large{8192, 8192, 16384};
  CacheWorld world(merged_extents({small, large}, 8), 2, 2);
  REQUIRE(world.cache.groups() == 1);
  world.use({0, 0});
  world.use({1, 0});
  CHECK_FALSE(world.use({0, 1}));
  CHECK(world.has({0, 1}));
  CHECK_FALSE(world.has({0, 0}));
}

TEST_CASE("eviction policy: an unknown name is refused with the known ones") {
  const auto refused = make_eviction_policy("best");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == ErrorCode::usage);
  CHECK(refused.error().what.find("lru") != std::string::npos);
}
