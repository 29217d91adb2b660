// Whole runs by seed: routing with skew through the loader on the fake scheduler, completions in
// any order, against a plain model of what LRU with floors must hit and against Belady.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cerrno>
#include <deque>
#include <limits>
#include <map>
#include <random>

#include "tests/prefetch/expert_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

struct Call {
  LayerIndex layer;
  std::vector<ExpertIndex> experts;  // distinct
};

// Tokens through all layers; each layer prefers low experts and repeats some of its last choice.
std::vector<Call> routing(std::uint64_t seed, std::uint32_t tokens, std::uint32_t layers,
                          std::uint32_t experts, std::uint32_t top_k) {
  std::mt19937_64 random(seed);
  std::vector<std::vector<ExpertIndex>> last(layers);
  std::vector<Call> calls;
  for (std::uint32_t token = 0; token < tokens; ++token) {
    for (LayerIndex layer = 0; layer < layers; ++layer) {
      std::vector<ExpertIndex> chosen;
      for (const ExpertIndex e : last[layer])
        if (random() % 3 == 0) chosen.push_back(e);
      while (chosen.size() < top_k) {
        const auto e = static_cast<ExpertIndex>(std::min(random() % experts, random() % experts));
        if (std::find(chosen.begin(), chosen.end(), e) == chosen.end()) chosen.push_back(e);
      }
      std::shuffle(chosen.begin(), chosen.end(), random);
      last[layer] = chosen;
      calls.push_back({layer, chosen});
    }
  }
  return calls;
}

// LRU with floors in the plainest words: all residents in one list, searched from end to end.
class PlainLru {
 public:
  PlainLru(std::size_t slots, std::vector<std::uint32_t> floors)
      : slots_(slots), floors_(std::move(floors)) {}

  std::uint64_t use(const Call& call) {
    std::uint64_t hits = 0;
    std::vector<ExpertIndex> missing;
    for (const ExpertIndex e : call.experts) {
      const auto found = find({call.layer, e});
      if (found == residents_.end()) {
        missing.push_back(e);
        continue;
      }
      std::rotate(found, found + 1, residents_.end());
      ++hits;
    }
    for (const ExpertIndex e : missing) {
      if (residents_.size() == slots_) evict(call);
      residents_.push_back({call.layer, e});
    }
    return hits;
  }

 private:
  std::vector<ExpertKey>::iterator find(ExpertKey key) {
    return std::find(residents_.begin(), residents_.end(), key);
  }
  void evict(const Call& call) {
    std::map<LayerIndex, std::uint32_t> count;
    for (const ExpertKey& key : residents_) ++count[key.layer];
    for (auto at = residents_.begin(); at != residents_.end(); ++at) {
      const bool in_use =
          at->layer == call.layer &&
          std::find(call.experts.begin(), call.experts.end(), at->expert) != call.experts.end();
      if (in_use || (at->layer != call.layer && count[at->layer] <= floors_[at->layer])) continue;
      residents_.erase(at);
      return;
    }
    FAIL("the plain model found no victim");
  }

  std::size_t slots_;
  std::vector<std::uint32_t> floors_;
  std::vector<ExpertKey> residents_;  // least recently asked for first
};

// Evicts what is needed again last, seen from the whole future.
std::uint64_t belady_hits(const std::vector<Call>& calls, std::size_t slots) {
  std::vector<ExpertKey> sequence;
  for (const Call& call : calls)
    for (const ExpertIndex e : call.experts) sequence.push_back({call.layer, e});
  const std::size_t never = std::numeric_limits<std::size_t>::max();
  std::vector<std::size_t> next(sequence.size(), never);
  std::map<std::pair<LayerIndex, ExpertIndex>, std::size_t> seen;
  for (std::size_t i = sequence.size(); i-- > 0;) {
    const std::pair key{sequence[i].layer, sequence[i].expert};
    if (const auto found = seen.find(key); found != seen.end()) next[i] = found->second;
    seen[key] = i;
  }
  std::map<std::pair<LayerIndex, ExpertIndex>, std::size_t> cached;  // and when needed again
  std::uint64_t hits = 0;
  for (std::size_t i = 0; i < sequence.size(); ++i) {
    const std::pair key{sequence[i].layer, sequence[i].expert};
    if (cached.contains(key)) {
      ++hits;
    } else if (cached.size() == slots) {
      cached.erase(std::max_element(cached.begin(), cached.end(), [](const auto& a, const auto& b) {
        return a.second < b.second;
      }));
    }
    cached[key] = next[i];
  }
  return hits;
}

// Runs the calls through the loader; reads complete and experts are released in any order.
std::uint64_t loader_hits(LoaderWorld& world, const std::vector<Call>& calls, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::uint64_t hits = 0;
  for (const Call& call : calls) {
    std::deque<Asker> askers;
    std::vector<Asker*> open;
    for (const ExpertIndex e : call.experts)
      open.push_back(&askers.emplace_back(ExpertKey{call.layer, e}));
    world.ask(open);
    while (!open.empty()) {
      const auto ready = std::partition(open.begin(), open.end(),
                                        [](const Asker* asker) { return !asker->ready(); });
      if (ready == open.end() || random() % 2 == 0) {
        const bool moved = world.scheduler.step();
        if (ready == open.end()) REQUIRE(moved);
        continue;
      }
      Asker* const done = *ready;
      open.erase(ready);
      hits += done->request.hit ? 1 : 0;
      if (!world.bytes_are_right(*done)) FAIL("wrong bytes, seed " << seed);
      world.release(*done);
    }
  }
  return hits;
}

}  // namespace

TEST_CASE("simulation: hits are exactly those of plain LRU with floors, and never above Belady") {
  const std::uint32_t layers = 5, experts = 12, top_k = 3;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    INFO("seed " << seed);
    const std::vector<Call> calls = routing(seed, 40, layers, experts, top_k);
    for (const std::uint32_t slots : {3u, 7u, 15u, 16u, 30u, 59u, 60u}) {
      FakeSchedulerOptions options;
      options.seed = seed;
      LoaderWorld world(equal_extents(layers, experts, {64, 64, 96}), slots, top_k, 512, options);
      PlainLru plain(slots, layer_floors(slots, layers, top_k));
      std::uint64_t expected = 0;
      for (const Call& call : calls) expected += plain.use(call);
      const std::uint64_t hits = loader_hits(world, calls, seed);
      INFO("slots " << slots);
      CHECK(hits == expected);
      CHECK(world.loader->stats().hits == hits);
      CHECK(world.loader->stats().misses == calls.size() * top_k - hits);
      CHECK(hits <= belady_hits(calls, slots));
      if (slots > 2 * top_k) CHECK(hits > 0);
    }
  }
}

TEST_CASE("simulation: two sizes of layers, each plan from the smallest up, give right bytes") {
  const SliceBytes small{64, 64, 96};
  const SliceBytes large{4096, 4096, 6144};
  const ExpertExtents extents = merged_extents({small, large, small, large}, 10);
  for (std::uint64_t slots = 4; slots <= 40; slots += 3) {
    FakeSchedulerOptions options;
    options.seed = slots;
    LoaderWorld world(extents, slots, 4, 512, options);
    const std::vector<Call> calls = routing(slots, 20, 4, 10, 4);
    const std::uint64_t hits = loader_hits(world, calls, slots);
    CHECK(world.loader->stats().hits == hits);
  }
}

TEST_CASE("simulation: several askers over few slots with failing reads all come to an end") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    FakeSchedulerOptions options;
    options.seed = seed;
    const std::uint64_t slots = 2 + seed % 7;
    LoaderWorld world(equal_extents(3, 8, {64, 64, 96}), slots, 2, 512, options);
    for (int i = 0; i < 20; ++i) {
      const ExpertKey key{static_cast<LayerIndex>(random() % 3),
                          static_cast<ExpertIndex>(random() % 8)};
      world.scheduler.set_fault(0, world.extents.at(key).up.offset_bytes, EIO, 1);
    }
    std::deque<Asker> askers;
    std::vector<Asker*> open;
    std::size_t failures = 0;
    for (int turn = 0; turn < 400 || !open.empty(); ++turn) {
      if (turn < 400 && random() % 4 == 0) {  // another call, whatever is open
        const auto layer = static_cast<LayerIndex>(random() % 3);
        std::vector<Asker*> call;
        for (std::uint64_t n = random() % 6 + 1; n > 0; --n)
          call.push_back(
              &askers.emplace_back(ExpertKey{layer, static_cast<ExpertIndex>(random() % 8)}));
        world.ask(call);
        open.insert(open.end(), call.begin(), call.end());
      }
      const bool moved = world.scheduler.step();
      bool released = false;
      for (std::size_t i = 0; i < open.size(); ++i) {
        Asker& asker = *open[i];
        const bool cancelled = turn < 400 && random() % 64 == 0;
        if (!asker.ready() && asker.failure.empty() && !cancelled) continue;
        if (asker.ready() && asker.failure.empty()) REQUIRE(world.bytes_are_right(asker));
        failures += asker.failure.empty() ? 0 : 1;
        world.release(asker);
        open.erase(open.begin() + static_cast<std::ptrdiff_t>(i--));
        released = true;
      }
      if (turn >= 400 && !open.empty())
        REQUIRE((moved || released || world.scheduler.queued() > 0));
    }
    world.scheduler.run();
    CHECK(failures >= world.loader->stats().failures / 2);
    for (LayerIndex l = 0; l < 3; ++l)
      for (ExpertIndex e = 0; e < 8; ++e)
        CHECK(world.loader->cache().state({l, e}) != ExpertCache::State::in_use);
  }
}
