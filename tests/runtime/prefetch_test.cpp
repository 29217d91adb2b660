// Guessing in whole runs: the same tokens and bits, and a score for each layer.
#include <catch2/catch.hpp>
#include <cmath>

#include "prefetch/predictor.h"
#include "runtime/generate.h"
#include "runtime/report.h"
#include "tests/support/test_engine.h"

using namespace millrace;
using namespace millrace::test;

namespace {

constexpr std::uint32_t prompt_tokens = 20;
constexpr std::uint32_t made_tokens = 41;  // the first belongs to the prompt

struct Run {
  std::unique_ptr<TestEngine> engine;
  GenerateResult result;
};

Run run(const std::string& prefetch, SizeSpec trunk = {}) {
  EngineConfig config;
  config.model_path = embedded_model();
  config.prefetch = prefetch;
  config.cache = {SizeSpec::Kind::percent, 0, 30};
  config.trunk = trunk;
  config.context = 128;
  config.threads = 2;
  Run made{open_engine(config), {}};
  GenerateOptions options;
  for (TokenId id = 0; id < static_cast<TokenId>(prompt_tokens); ++id)
    options.prompt.push_back(300 + id * 7);
  options.tokens_max = made_tokens;
  options.sampling.temperature = 0;
  options.ignore_eos = true;
  auto result = generate(*made.engine->engine, options, [](std::string_view) {});
  REQUIRE(result);
  REQUIRE_FALSE(result->error);
  made.result = *std::move(result);
  return made;
}

}  // namespace

TEST_CASE("prefetch: every predictor leaves the logits as they are, and is scored by layer") {
  const std::uint64_t expected = run("off").result.state_hash;
  for (const char* const name : predictor_names()) {
    INFO(name);
    const Run made = run(name);
    CHECK(made.result.state_hash == expected);
    const Prefetcher* const prefetcher = made.engine->engine->prefetcher();
    REQUIRE(prefetcher != nullptr);
    CHECK(prefetcher->name() == std::string(name));
    const LoaderStats stats = made.engine->engine->counters().experts;
    CHECK(stats.guesses_used_bytes <= stats.guessed_bytes);
    const std::string_view which = name;
    const auto& scores = prefetcher->scores();
    REQUIRE(scores.size() == 6);
    for (LayerIndex layer = 1; layer < 6; ++layer) {
      CHECK(scores[layer].right <= scores[layer].guessed);
      if (prefetcher->pauses() == 0) CHECK(scores[layer].chosen >= 38 * 4);
    }
    if (which.starts_with("router")) {
      CHECK(scores[0].chosen == 0);  // nothing is known of the next token
      // The stream changes little: far more than the eighth that chance would guess.
      CHECK(prefetcher->total().recall() > 0.4);
    }
    if (which == "wrong") {  // no better than chance, within three deviations of the few it tried
      constexpr double chance = 0.125;
      const auto chosen = static_cast<double>(prefetcher->total().chosen);
      CHECK(prefetcher->total().recall() < chance + 3 * std::sqrt(chance * (1 - chance) / chosen));
    }
    const Json report = report_json(*made.engine->engine, made.result);
    const Json* const json = report.find("prefetch");
    REQUIRE(json != nullptr);
    double recall = -1;
    REQUIRE(json->find("recall")->get_number(recall));
    CHECK(recall == prefetcher->total().recall());
    CHECK_FALSE(json->find("layers")->as_array()->empty());
    CHECK(report_table(*made.engine->engine, made.result).find("prefetch") != std::string::npos);
  }
}

TEST_CASE("prefetch: routers of streamed layers are passed over") {
  const TrunkPlan all = run("off").engine->engine->plan().trunk;
  const SizeSpec half{SizeSpec::Kind::bytes, all.smallest_bytes + 96 * KiB + all.pinned_bytes / 2,
                      0};
  const Run off = run("off", half);
  const Run made = run("router1", half);
  CHECK(made.result.state_hash == off.result.state_hash);
  const std::uint32_t pinned = made.engine->engine->plan().trunk.pinned_layers;
  REQUIRE(pinned < 6);
  const auto& scores = made.engine->engine->prefetcher()->scores();
  for (LayerIndex layer = pinned; layer < 6; ++layer) CHECK(scores[layer].chosen == 0);
}
