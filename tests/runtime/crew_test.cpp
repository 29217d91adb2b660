// Crews of an arena: every index of every piece once, whoever comes and goes.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "runtime/graph/arena.h"

using namespace millrace;

namespace {

std::unique_ptr<ComputeArena> make_arena(unsigned threads) {
  auto made = ComputeArena::create(threads);
  if (!made) FAIL(made.error().what);
  return *std::move(made);
}

// Shares out `count` indices; true if each was met once, in whole grains.
bool covers(ComputeArena& arena, std::size_t count, std::size_t grain) {
  std::vector<std::atomic<unsigned>> met(count);
  std::atomic<bool> whole = true;
  arena.for_ranges(count, grain, [&](std::size_t begin, std::size_t end, unsigned worker) {
    if (begin % grain != 0 || (end % grain != 0 && end != count)) whole = false;
    if (worker >= arena.workers()) whole = false;
    for (std::size_t i = begin; i < end; ++i) ++met[i];
  });
  for (const auto& one : met)
    if (one != 1) return false;
  return whole;
}

}  // namespace

TEST_CASE("crew: pieces of all sizes are covered once, with fewer and more threads than cores") {
  for (const unsigned threads : {1U, 2U, 3U, 7U}) {
    const auto arena = make_arena(threads);
    arena->run([&] {
      const CrewScope crew(*arena);
      for (std::size_t round = 0; round < 300; ++round)
        for (const std::size_t count : {1, 2, 3, 16, 17, 100})
          REQUIRE(covers(*arena, count, 1 + round % 5));
      REQUIRE(covers(*arena, 200'000, 1));  // more than there are parts
      REQUIRE(covers(*arena, 200'001, 3));
      REQUIRE(covers(*arena, 0, 1));
    });
  }
}

TEST_CASE("crew: several threads take part, each under its own number") {
  const auto arena = make_arena(3);
  std::set<unsigned> seen;
  std::atomic<bool> twice = false;
  std::array<std::atomic<unsigned>, 3> inside = {};
  arena->run([&] {
    const CrewScope crew(*arena);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (seen.size() < 3 && std::chrono::steady_clock::now() < until) {
      std::array<std::atomic<bool>, 3> here = {};
      arena->for_ranges(12, 1, [&](std::size_t, std::size_t, unsigned worker) {
        if (inside[worker].fetch_add(1) != 0) twice = true;
        here[worker] = true;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
        inside[worker].fetch_sub(1);
      });
      for (unsigned worker = 0; worker < 3; ++worker)
        if (here[worker]) seen.insert(worker);
    }
  });
  CHECK(seen.size() == 3);
  CHECK_FALSE(twice);
}

TEST_CASE("crew: members that went home are sent for again, and others may lead") {
  const auto arena = make_arena(2);
  for (int round = 0; round < 20; ++round) {
    const auto lead = [&] {
      arena->run([&] {
        const CrewScope crew(*arena);
        for (int i = 0; i < 20; ++i) REQUIRE(covers(*arena, 50, 1));
      });
    };
    lead();
    if (round % 4 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    if (round % 3 == 0) arena->run([&] { REQUIRE(covers(*arena, 50, 1)); });  // without a crew
    std::thread(lead).join();
  }
}

TEST_CASE("crew: a body that shares out work again gets all of it done") {
  const auto arena = make_arena(3);
  arena->run([&] {
    const CrewScope crew(*arena);
    for (int round = 0; round < 50; ++round) {
      std::atomic<unsigned> inner = 0;
      arena->for_ranges(6, 1, [&](std::size_t begin, std::size_t end, unsigned) {
        for (std::size_t i = begin; i < end; ++i)
          arena->for_ranges(40, 1, [&](std::size_t from, std::size_t to, unsigned) {
            inner += static_cast<unsigned>(to - from);
          });
      });
      REQUIRE(inner == 240);
    }
  });
}

TEST_CASE("crew: released without staying, its threads do tasks at once") {
  const auto arena = make_arena(2);
  for (int round = 0; round < 50; ++round) {
    arena->run([&] {
      arena->gather_crew();
      REQUIRE(covers(*arena, 20, 1));
      arena->release_crew(false);
      REQUIRE(covers(*arena, 20, 1));
    });
  }
}
