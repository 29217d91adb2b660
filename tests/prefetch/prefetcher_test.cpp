// Guesses: predictors, spare slots, and what the loader makes of them.
#include <catch2/catch.hpp>

#include "prefetch/prefetcher.h"
#include "tests/prefetch/expert_world.h"

using namespace millrace;
using namespace millrace::testing;
using State = ExpertCache::State;

namespace {

using Experts = std::vector<ExpertIndex>;

Experts guess_of(Predictor& predictor, LayerIndex layer, std::size_t most) {
  Experts out(most);
  out.resize(predictor.guess(layer, out));
  return out;
}

std::unique_ptr<Predictor> prepared(const char* name, std::uint32_t layers = 3,
                                    std::uint32_t experts = 8, std::uint32_t top_k = 2) {
  auto predictor = make_predictor(name);
  REQUIRE(predictor);
  (*predictor)->prepare({.layers = layers, .experts = experts, .top_k = top_k});
  return *std::move(predictor);
}

// A loader with spare slots: LRU, so that what is evicted can be told beforehand.
struct GuessWorld : LoaderWorld {
  GuessWorld(std::uint32_t layers, std::uint32_t experts, std::uint64_t slots,
             std::uint32_t top_k_of, std::uint32_t spares)
      : LoaderWorld(equal_extents(layers, experts), slots, top_k_of) {
    loader.reset();
    loader.emplace(LoaderParts{.layout = layout,
                               .plan = plan,
                               .blocks = blocks,
                               .files = files,
                               .scheduler = scheduler,
                               .activity = activity,
                               .top_k = top_k_of,
                               .policy = make_eviction_policy("lru").value(),
                               .spares = spares});
  }
  void suggest(LayerIndex layer, const Experts& experts) { loader->suggest(layer, experts); }
  State state(LayerIndex layer, ExpertIndex expert) {
    return loader->cache().state({layer, expert});
  }
};

}  // namespace

TEST_CASE("predictors: each guesses what it is for, and never more than is asked of it") {
  const auto previous = prepared("previous");
  CHECK(guess_of(*previous, 1, 2).empty());
  previous->chosen(1, Experts{5, 3});
  CHECK(guess_of(*previous, 1, 2) == Experts{5, 3});
  CHECK(guess_of(*previous, 1, 1) == Experts{5});

  for (const char* const name : {"router1", "router2"}) {
    const auto router = prepared(name);
    CHECK(router->layers_ahead() == (name == std::string("router1") ? 1 : 2));
    router->foreseen(2, Experts{7, 1});
    CHECK(guess_of(*router, 2, 2) == Experts{7, 1});
    router->chosen(2, Experts{7, 0});  // its turn is over
    CHECK(guess_of(*router, 2, 2).empty());
  }

  const auto transition = prepared("transition");
  for (int token = 0; token < 10; ++token) {
    const auto first = static_cast<ExpertIndex>(token % 2);
    transition->chosen(0, Experts{first});
    transition->chosen(1, Experts{first + 4});
  }
  transition->chosen(0, Experts{0});
  CHECK(guess_of(*transition, 1, 1) == Experts{4});
  transition->chosen(0, Experts{1});
  CHECK(guess_of(*transition, 1, 1) == Experts{5});

  const auto wrong = prepared("wrong");
  wrong->chosen(0, Experts{0, 1});
  CHECK(guess_of(*wrong, 0, 2) == Experts{2, 3});

  const auto refused = make_predictor("oracle");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().what.find("router1") != std::string::npos);
}

TEST_CASE("guesses: they take spare slots only, and evict nothing that was asked for") {
  GuessWorld world(2, 16, 8, 2, 2);
  for (ExpertIndex e = 0; e < 6; ++e) world.use({0, e});
  REQUIRE(world.loader->spares() == 2);
  for (ExpertIndex e = 0; e < 12; e += 2) {
    world.suggest(1, {e, e + 1});
    world.scheduler.run();
  }
  CHECK(world.state(1, 10) == State::ready);
  CHECK(world.state(1, 11) == State::ready);
  CHECK(world.state(1, 9) == State::absent);
  for (ExpertIndex e = 0; e < 6; ++e) CHECK(world.state(0, e) == State::ready);
  const LoaderStats stats = world.loader->stats();
  CHECK(stats.evictions == 0);
  CHECK(stats.guessed_bytes > 0);
  CHECK(stats.guesses_used_bytes == 0);
  CHECK(stats.loads == 6);
}

TEST_CASE("guesses: a guess that has come is a hit, and another slot becomes the spare") {
  GuessWorld world(2, 16, 8, 2, 2);
  for (ExpertIndex e = 0; e < 6; ++e) world.use({0, e});
  world.suggest(1, {7, 8});
  world.scheduler.run();
  Asker asker({1, 7});
  world.ask({&asker});
  CHECK(asker.request.hit);
  CHECK(asker.ready());
  CHECK(world.bytes_are_right(asker));
  world.release(asker);
  CHECK(world.loader->stats().hits == 1);
  CHECK(world.loader->stats().guesses_used_bytes > 0);
  CHECK(world.state(0, 0) == State::absent);  // the oldest gave way, as to a miss
  CHECK(world.state(0, 1) == State::ready);
  world.suggest(1, {9, 10});  // there are two spares again: 8's and the new one
  world.scheduler.run();
  CHECK(world.state(1, 7) == State::ready);
  CHECK(world.state(1, 9) == State::ready);
  CHECK(world.state(1, 10) == State::ready);
  CHECK(world.state(1, 8) == State::absent);
}

TEST_CASE("guesses: one that is asked for while it comes is read at once, with the right bytes") {
  GuessWorld world(2, 16, 8, 2, 2);
  world.suggest(1, {7, 8});
  world.scheduler.step();  // a part of the first has come
  Asker first({1, 7}), second({1, 8}), third({1, 9});
  world.ask({&first, &second, &third});
  CHECK_FALSE(first.request.hit);
  world.scheduler.run();
  for (Asker* asker : {&first, &second, &third}) {
    CHECK(asker->ready());
    CHECK_FALSE(asker->repeated);
    CHECK(world.bytes_are_right(*asker));
    world.release(*asker);
  }
  CHECK(world.loader->stats().joined == 2);
  CHECK(world.loader->stats().loads == 1);
}

TEST_CASE("guesses: wrong ones that have not begun are taken back when their layer asks") {
  GuessWorld world(2, 16, 8, 2, 2);
  world.suggest(1, {7, 8});
  Asker asker({1, 3});
  world.ask({&asker});
  CHECK(world.state(1, 7) == State::absent);
  CHECK(world.state(1, 8) == State::absent);
  CHECK(world.loader->stats().guessed_bytes == 0);
  world.scheduler.run();
  CHECK(asker.ready());
  world.release(asker);
  world.suggest(1, {8, 9});
  world.scheduler.run();
  CHECK(world.state(1, 8) == State::ready);
}

TEST_CASE("guesses: one of which a part was taken back is never taken for the whole") {
  GuessWorld world(2, 16, 8, 2, 2);
  world.suggest(1, {7});
  world.scheduler.step();
  Asker other({1, 3});
  world.ask({&other});
  world.scheduler.run();
  world.release(other);
  Asker again({1, 7});
  world.ask({&again});
  world.scheduler.run();
  CHECK(again.ready());
  CHECK(world.bytes_are_right(again));
  world.release(again);
}

TEST_CASE("guesses: one that fails is no failure of anything, and can be asked for") {
  GuessWorld world(2, 16, 8, 2, 2);
  const std::uint64_t at = world.extents.at({1, 7}).gate.offset_bytes;
  world.scheduler.set_fault(0, at, EIO, 1);
  world.suggest(1, {7});
  world.scheduler.run();
  CHECK(world.state(1, 7) == State::absent);
  CHECK(world.loader->stats().failures == 0);
  CHECK_FALSE(world.use({1, 7}));
}

TEST_CASE("prefetcher: wrong guesses are given up after a trial, right ones go on and are scored") {
  for (const char* const name : {"wrong", "previous"}) {
    INFO(name);
    const std::uint32_t layers = 4, experts = 64, top_k = 4;
    GuessWorld world(layers, experts, 24, top_k, 8);
    const PredictorShape shape{.layers = layers, .experts = experts, .top_k = top_k};
    Prefetcher prefetcher(*world.loader, make_predictor(name).value(), shape,
                          std::vector<bool>(layers, true));
    for (std::uint32_t token = 0; token < 60; ++token) {
      for (LayerIndex layer = 0; layer < layers; ++layer) {
        // Half of the choice stays for long, half changes with each token.
        const ExpertIndex moving = 8 + (token * 2) % 48;
        const Experts chosen = {0, 1, moving, moving + 1};
        prefetcher.chosen(layer, chosen);
        std::vector<Asker> askers;
        for (const ExpertIndex expert : chosen) askers.emplace_back(ExpertKey{layer, expert});
        for (Asker& asker : askers) asker.request.owner = &asker;
        std::vector<Asker*> list;
        for (Asker& asker : askers) list.push_back(&asker);
        world.ask(list);
        prefetcher.look_ahead(layer);
        world.scheduler.run();
        for (Asker& asker : askers) world.release(asker);
      }
    }
    const bool is_wrong = name == std::string("wrong");
    const double precision = prefetcher.total().precision();
    if (is_wrong) CHECK(precision < Prefetcher::used_share_min);
    else CHECK(precision == Approx(0.5).margin(0.02));
    if (!is_wrong) continue;
    CHECK(prefetcher.pauses() > 0);
    // Trials end in the layer in which 16 guesses and those of the layer ahead have been read; one
    // that is lucky is followed by another. Without a stop: 960.
    constexpr std::uint64_t trial = 16 + top_k, trials = 2;
    CHECK(world.loader->stats().guessed_bytes <=
          trials * (trial + top_k) * world.loader->largest_expert_bytes());
  }
}

TEST_CASE("prefetcher: guesses that are taken back before they began are no reason to stop") {
  const std::uint32_t layers = 4, top_k = 4;
  GuessWorld world(layers, 64, 24, top_k, 8);
  const PredictorShape shape{.layers = layers, .experts = 64, .top_k = top_k};
  Prefetcher prefetcher(*world.loader, make_predictor("router1").value(), shape,
                        std::vector<bool>(layers, true));
  for (std::uint32_t step = 0; step < 400; ++step) {
    const LayerIndex layer = step % layers;
    const auto expert = [](std::uint32_t s) { return s * 7 % 64; };
    // Whole rounds of guesses come in time and are used; every other round none has begun when it
    // turns out that they were wrong.
    const bool right = step / 8 % 2 == 0;
    const ExpertIndex first = expert(step);
    prefetcher.chosen(layer, Experts{first});
    Asker asker({layer, first});
    asker.request.owner = &asker;
    world.ask({&asker});
    world.scheduler.run();
    world.release(asker);
    const bool next_right = (step + 1) / 8 % 2 == 0;
    const LayerIndex next = (step + 1) % layers;
    prefetcher.foreseen(next, next_right ? Experts{expert(step + 1)}
                                         : Experts{(first + 20) % 64, (first + 30) % 64,
                                                   (first + 40) % 64, (first + 50) % 64});
    prefetcher.look_ahead(layer);
    if (next_right) world.scheduler.run();
    if (!right) CHECK_FALSE(asker.request.hit);
  }
  CHECK(world.loader->stats().guesses_used_bytes > 0);
  CHECK(prefetcher.pauses() == 0);
}
