// Fixtures whose routing is asked for: what is solved on paper comes out of real forward passes.
#include <catch2/catch.hpp>

#include "runtime/fixture/routing_check.h"
#include "tests/support/temp_folder.h"

using namespace millrace;

namespace {

RoutingMeasures measured(const std::string& path, const char* asked, std::uint64_t seed) {
  FixtureOptions options;
  options.shape = *find_model_shape("qwen3-30b-a3b");
  REQUIRE(change_shape(options.shape, {.layers = 4,
                                       .width = 512,
                                       .experts = 64,
                                       .experts_used = 8,
                                       .expert_width = 64,
                                       .vocabulary = 8192,
                                       .context = 512}));
  options.mix = *find_type_mix("mxfp4");
  options.path = path;
  options.seed = seed;
  const RoutingTargets targets = *parse_routing_targets(asked);
  options.routing = *plan_routing(options.shape, *options.mix, targets, seed);
  ProgressLine progress(false);
  const std::atomic<bool> cancel = false;
  REQUIRE(write_fixture(options, plan_fixture(options), progress, cancel));
  const auto check = check_routing(options, progress, cancel);
  INFO((check ? "" : check.error().what));
  REQUIRE(check);
  CHECK(check->layers == 4);
  return check->measures;
}

}  // namespace

TEST_CASE("routing: knobs are found for what real models show") {
  // Exponent, reuse and lookahead of Qwen3-30B-A3B and of gpt-oss-120b's routing.
  struct Case {
    const char* asked;
    std::uint32_t experts, used;
    double zipf, reuse, lookahead;
  };
  for (const Case& c : {Case{"zipf:1.1,reuse:0.38,lookahead:0.88", 128, 8, 1.1, 0.38, 0.88},
                        Case{"zipf:0.98,reuse:0.3,lookahead:0.6", 128, 4, 0.98, 0.3, 0.6}}) {
    const RoutingKnobs knobs = solve_routing(*parse_routing_targets(c.asked), c.experts, c.used);
    const RoutingMeasures played = play_routing(knobs, c.experts, c.used, 192);
    CAPTURE(c.asked, knobs.popularity, knobs.topic, knobs.fresh);
    CHECK(played.zipf == Approx(c.zipf).margin(0.06));
    CHECK(played.reuse == Approx(c.reuse).margin(0.03));
    CHECK(played.lookahead == Approx(c.lookahead).margin(0.03));
  }
}

TEST_CASE("routing: real forward passes come near what was asked for") {
  const testing::TempFolder folder;
  const std::string path = folder.path("model.gguf");
  const RoutingMeasures some = measured(path, "zipf:1,reuse:0.45,lookahead:0.85", 3);
  CAPTURE(some.zipf, some.reuse, some.lookahead);
  CHECK(some.zipf == Approx(1).margin(0.25));
  CHECK(some.reuse == Approx(0.45).margin(0.1));
  CHECK(some.lookahead == Approx(0.85).margin(0.1));
  const RoutingMeasures flat = measured(path, "zipf:0,reuse:0,lookahead:0.5", 3);
  CAPTURE(flat.zipf, flat.reuse, flat.lookahead);
  CHECK(flat.zipf < some.zipf - 0.3);
  CHECK(flat.reuse < some.reuse - 0.15);
  CHECK(flat.lookahead < some.lookahead - 0.15);
  const RoutingMeasures again = measured(path, "zipf:1,reuse:0.45,lookahead:0.85", 3);
  CHECK(again.zipf == some.zipf);
  CHECK(again.reuse == some.reuse);
  CHECK(again.lookahead == some.lookahead);
}

TEST_CASE("routing: counters count what two lists have in common") {
  RoutingCounter counter(2, 8);
  counter.add(0, {1, 2});
  counter.add(0, {2, 3});
  counter.add(1, {5, 6});
  counter.add(1, {6, 5});
  counter.add_guess({1, 2}, {2, 7});
  const RoutingMeasures measures = counter.measures();
  CHECK(measures.reuse == Approx(3.0 / 4));
  CHECK(measures.lookahead == Approx(0.5));
  CHECK(largest({1, 3, 3, 2}, 3) == std::vector<ExpertIndex>{1, 2, 3});
}

TEST_CASE("routing: what is no request is refused by its part") {
  for (const char* text : {"zipf", "zipf:", "zipf:x", "zipf:4", "reuse:1.5", "reuse:-1", "luck:1",
                           "zipf:1,zipf:1", "zipf:1,", "reuse:0.3;zipf:1"}) {
    CAPTURE(text);
    const auto parsed = parse_routing_targets(text);
    REQUIRE_FALSE(parsed);
    CHECK(parsed.error().code == ErrorCode::usage);
    CHECK(parsed.error().what.find("--routing") == 0);
  }
  const ModelShape dense = *find_model_shape("smollm2-135m");
  CHECK(plan_routing(dense, **find_type_mix("q8_0"), {}, 1).error().what.find("dense") !=
        std::string::npos);
  ModelShape narrow = *find_model_shape("qwen3-30b-a3b");
  narrow.width = 128;
  CHECK(plan_routing(narrow, **find_type_mix("q8_0"), {}, 1).error().what.find("128") !=
        std::string::npos);
}
