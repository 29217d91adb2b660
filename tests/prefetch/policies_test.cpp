// What every eviction policy owes its cache, and what each of them is for.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>

#include "prefetch/expert_cache.h"
#include "prefetch/policies/clairvoyant.h"
#include "prefetch/policies/indexed_heap.h"
#include "prefetch/replay.h"
#include "tests/prefetch/expert_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

std::vector<std::string> names() {
  return {eviction_policy_names().begin(), eviction_policy_names().end()};
}

RoutingCall decode_call(LayerIndex layer, std::vector<ExpertIndex> experts) {
  RoutingCall call;
  call.layer = layer;
  call.phase = RoutingPhase::generation;
  call.tokens = 1;
  call.chosen_by.assign(experts.size(), 1);
  call.experts = std::move(experts);
  return call;
}

std::vector<ExpertIndex> choose(std::mt19937_64& random, std::uint32_t top_k,
                                std::uint32_t experts) {
  std::vector<ExpertIndex> chosen;
  while (chosen.size() < top_k) {
    const auto expert = static_cast<ExpertIndex>(random() % experts);
    if (std::find(chosen.begin(), chosen.end(), expert) == chosen.end()) chosen.push_back(expert);
  }
  return chosen;
}

struct World {
  World(std::uint32_t layers, std::uint32_t experts, std::uint64_t slots, std::uint32_t k)
      : layout(equal_extents(layers, experts), std::vector<std::uint32_t>{1}),
        plan(plan_of(layout, slots, k)),
        top_k(k) {}

  std::uint64_t hits(std::span<const RoutingCall> calls, std::unique_ptr<EvictionPolicy> policy) {
    std::uint64_t sum = 0;
    for (const CallCounts& counts : replay_calls(calls, layout, plan, top_k, std::move(policy)))
      sum += counts.hits;
    return sum;
  }
  std::uint64_t hits(std::span<const RoutingCall> calls, const std::string& name) {
    if (name == "belady") return hits(calls, std::make_unique<ClairvoyantPolicy>(calls));
    return hits(calls, make_eviction_policy(name).value());
  }

  SlotLayout layout;
  SlotPlan plan;
  std::uint32_t top_k;
};

}  // namespace

TEST_CASE("eviction policies: whatever happens, an idle slot is found and a busy one never taken") {
  for (const std::string& name : names()) {
    INFO(name);
    std::mt19937_64 random(7);
    const std::uint32_t layers = 5, experts = 16;
    const SlotLayout layout(merged_extents({{8000, 8000, 8800},
                                            {4000, 4000, 6000},
                                            {8000, 8000, 8800},
                                            {4000, 4000, 6000},
                                            {8000, 8000, 8800}},
                                           experts),
                            std::vector<std::uint32_t>{1});
    const SlotPlan plan = plan_of(layout, 20, 4);
    ExpertCache cache(layout, plan, 4, make_eviction_policy(name).value());
    std::vector<std::vector<SlotIndex>> busy(cache.groups());
    std::vector<std::uint64_t> sizes;
    for (const SlotGroup& group : plan.groups) sizes.push_back(group.slots);
    for (int step = 0; step < 20000; ++step) {
      const ExpertKey key{static_cast<LayerIndex>(random() % layers),
                          static_cast<ExpertIndex>(random() % experts)};
      auto& held = busy[cache.group(key)];
      if (step % 3 == 0) cache.begin(key.layer, 1 + static_cast<std::uint32_t>(random() % 9));
      ExpertCache::Asked asked = cache.ask(key, 1);
      if (asked.slot == no_slot) {
        asked.slot = cache.assign(key, 1);
        // Claims may repeat a slot: with fewer of them than slots one is free or idle for certain.
        // The floors of LRU may still keep it for its layer, until nothing is held at all.
        const std::uint64_t most = name == "lru" ? 1 : sizes[cache.group(key)];
        if (held.size() < most) REQUIRE(asked.slot != no_slot);
        if (asked.slot == no_slot) continue;
        CHECK(std::find(held.begin(), held.end(), asked.slot) == held.end());
        if (random() % 8 == 0) cache.fail(asked.slot);
        cache.finish(asked.slot);
      }
      held.push_back(asked.slot);
      while (!held.empty() && random() % 2 == 0) {
        const std::size_t at = random() % held.size();
        cache.release(held[at]);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(at));
      }
    }
  }
}

TEST_CASE("eviction policies: the order of releases within a call changes no hit") {
  const std::uint32_t layers = 6, experts = 32, top_k = 4;
  const SlotLayout layout(equal_extents(layers, experts), std::vector<std::uint32_t>{1});
  for (const std::string& name : names()) {
    INFO(name);
    std::vector<std::uint64_t> hits;
    for (const unsigned order : {1u, 2u, 3u}) {
      std::mt19937_64 random(5);
      std::mt19937_64 releases(order);
      ExpertCache cache(layout, plan_of(layout, 40, top_k), top_k,
                        make_eviction_policy(name).value());
      for (int token = 0; token < 200; ++token) {
        for (LayerIndex layer = 0; layer < layers; ++layer) {
          cache.begin(layer, 1);
          std::vector<SlotIndex> held;
          std::vector<ExpertKey> missing;
          for (const ExpertIndex expert : choose(random, top_k, experts / 2)) {
            const auto asked = cache.ask({layer, expert});
            if (asked.slot == no_slot) missing.push_back({layer, expert});
            else held.push_back(asked.slot);
          }
          for (const ExpertKey key : missing) held.push_back(cache.assign(key));
          for (const ExpertKey key : missing) cache.finish(cache.find(key));
          std::shuffle(held.begin(), held.end(), releases);
          for (const SlotIndex slot : held) cache.release(slot);
        }
      }
      hits.push_back(cache.counters().hits);
    }
    CHECK(hits[0] > 0);
    CHECK(hits[0] == hits[1]);
    CHECK(hits[0] == hits[2]);
  }
}

TEST_CASE("eviction policies: none hits more than Belady, at any size, and all slots suffice") {
  std::mt19937_64 random(11);
  const std::uint32_t layers = 4, experts = 24, top_k = 3;
  std::vector<RoutingCall> calls;
  for (int token = 0; token < 120; ++token)
    for (LayerIndex layer = 0; layer < layers; ++layer)
      calls.push_back(decode_call(layer, choose(random, top_k, 8 + layer * 4)));
  for (const std::uint64_t slots : {3u, 6u, 12u, 24u, 48u, 96u}) {
    World world(layers, experts, slots, top_k);
    const std::uint64_t best = world.hits(calls, "belady");
    for (const std::string& name : names()) {
      INFO(name << " with " << slots << " slots");
      CHECK(world.hits(calls, name) <= best);
      if (slots == 96) CHECK(world.hits(calls, name) == best);
    }
  }
}

// A layer's experts come back after all other layers were asked: what plain recency keeps of a
// budget below one token's experts is never what is asked for next.
TEST_CASE("eviction policies: a budget below one token's experts does not fall off a cliff") {
  const std::uint32_t layers = 10, experts = 32, top_k = 4, token = layers * top_k;
  std::mt19937_64 random(11);
  std::vector<std::vector<ExpertIndex>> last(layers);
  std::vector<RoutingCall> calls;
  for (int i = 0; i < 200; ++i) {
    for (LayerIndex layer = 0; layer < layers; ++layer) {
      std::vector<ExpertIndex> chosen;
      for (const ExpertIndex expert : last[layer])
        if (random() % 3 == 0) chosen.push_back(expert);
      while (chosen.size() < top_k) {  // low ones more often
        const auto any = static_cast<ExpertIndex>(std::min(random() % experts, random() % experts));
        if (std::find(chosen.begin(), chosen.end(), any) == chosen.end()) chosen.push_back(any);
      }
      last[layer] = chosen;
      calls.push_back(decode_call(layer, chosen));
    }
  }
  const auto hits = [&](const std::string& name, std::uint64_t slots) {
    return static_cast<double>(World(layers, experts, slots, top_k).hits(calls, name));
  };
  for (const std::string& name : names()) {
    INFO(name);
    // Just below and just above: a few slots, not a step.
    CHECK(hits(name, token - 2) > 0.85 * hits(name, token + 2));
    if (name == "s3fifo") continue;  // its small queue is a plain queue: nothing at a quarter
    for (const std::uint64_t slots : {token / 4, token / 2, 3 * token / 4}) {
      INFO(slots << " slots");
      CHECK(hits(name, slots) > (name == "forecast" ? 0.35 : 0.2) * hits("belady", slots));
    }
  }
  CHECK(hits(eviction_policy_default, token / 2) > hits("lru", token / 2));
}

TEST_CASE("eviction policies: Belady's hits are those that a search over all choices finds") {
  // One layer, top-1, two slots: A B C A B A C B; the best keeps A while B and C change places.
  std::vector<RoutingCall> calls;
  for (const ExpertIndex expert : {0u, 1u, 2u, 0u, 1u, 0u, 2u, 1u})
    calls.push_back(decode_call(0, {expert}));
  World world(1, 4, 2, 1);
  CHECK(world.hits(calls, "belady") == 3);
}

TEST_CASE("forecast: a cyclic walk over more layers than fit keeps hitting what it can keep") {
  // Every token asks the same four experts of each of ten layers, and 24 slots hold 24 of the 40:
  // plain recency would evict each one just before its turn.
  std::vector<RoutingCall> calls;
  for (int token = 0; token < 50; ++token)
    for (LayerIndex layer = 0; layer < 10; ++layer)
      calls.push_back(decode_call(layer, {0, 1, 2, 3}));
  World world(10, 8, 24, 4);
  const std::uint64_t best = world.hits(calls, "belady");
  CHECK(world.hits(calls, "forecast") * 10 > best * 9);
  CHECK(world.hits(calls, "forecast") > world.hits(calls, "lru"));
}

TEST_CASE("forecast and lfu: what is often chosen survives a burst of what is not") {
  for (const std::string name : {"forecast", "lfu"}) {
    INFO(name);
    std::vector<RoutingCall> calls;
    for (int token = 0; token < 40; ++token) calls.push_back(decode_call(0, {0, 1}));
    for (ExpertIndex other = 2; other < 12; other += 2)
      calls.push_back(decode_call(0, {other, other + 1}));
    calls.push_back(decode_call(0, {0, 1}));
    World world(1, 16, 6, 2);
    CHECK(world.hits(calls, name) == 2 * 40);  // all but the first two, and the last two
    CHECK(world.hits(calls, "lru") == 2 * 39);
  }
}

TEST_CASE("forecast: after a prompt part what most of its tokens chose is kept in every layer") {
  std::vector<RoutingCall> calls;
  for (LayerIndex layer = 0; layer < 4; ++layer) {
    RoutingCall part;
    part.layer = layer;
    part.tokens = 64;
    for (ExpertIndex expert = 0; expert < 16; ++expert) {
      part.experts.push_back(expert);
      part.chosen_by.push_back(expert < 2 ? 57 : 1);
    }
    calls.push_back(part);
  }
  for (LayerIndex layer = 0; layer < 4; ++layer) calls.push_back(decode_call(layer, {0, 1}));
  World world(4, 16, 24, 2);
  CHECK(world.hits(calls, "forecast") == 8);
  CHECK(world.hits(calls, "lru") < 8);
}

TEST_CASE("s3fifo: what is asked for once passes through without touching the main queue") {
  std::vector<RoutingCall> calls;
  for (int round = 0; round < 3; ++round)
    for (ExpertIndex expert = 0; expert < 8; ++expert) calls.push_back(decode_call(0, {expert}));
  for (ExpertIndex expert = 20; expert < 60; ++expert) calls.push_back(decode_call(0, {expert}));
  for (ExpertIndex expert = 0; expert < 8; ++expert) calls.push_back(decode_call(0, {expert}));
  World world(1, 64, 10, 1);
  CHECK(world.hits(calls, "s3fifo") == 24);
  CHECK(world.hits(calls, "lru") == 16);
}

TEST_CASE("indexed heap: any id can go or change its key, and the least stays on top") {
  std::mt19937_64 random(3);
  IndexedHeap heap;
  IndexedHeap::Places places(64, -1);
  std::vector<double> keys(64, -1);
  heap.reserve(64);
  for (int step = 0; step < 5000; ++step) {
    const auto id = static_cast<std::uint32_t>(random() % 64);
    const double key = static_cast<double>(random() % 100);
    if (step % 97 == 0) {
      heap.rekey(places, [&](std::uint32_t of) {
        return IndexedHeap::Key{keys[of] = static_cast<double>((of * 37 + step) % 50), of};
      });
    } else if (places[id] < 0) {
      heap.push(places, id, {keys[id] = key, id});
    } else if (random() % 2 == 0) {
      heap.remove(places, id);
      keys[id] = -1;
    } else {
      heap.update(places, id, {keys[id] = key, id});
    }
    double least = 1e9;
    std::size_t count = 0;
    for (const double of : keys) {
      count += of >= 0 ? 1 : 0;
      if (of >= 0) least = std::min(least, of);
    }
    REQUIRE(heap.size() == count);
    if (count > 0) REQUIRE(heap.top().key.first == least);
  }
}
