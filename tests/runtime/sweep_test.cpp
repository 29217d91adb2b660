// Sweeps over the embedded model: what is combined, what stands in a row, what is refused.
#include "runtime/sweep/sweep.h"

#include <catch2/catch.hpp>

#include "tests/support/test_engine.h"

using namespace millrace;
using namespace millrace::test;

namespace {

const std::vector<SweepAxis> two_axes = {{"--threads", {"1", "2"}}, {"--cache", {"25%", "100%"}}};

// Values of `--threads` and `--cache`.
const auto config_of = [](const std::vector<std::string>& values) -> Result<EngineConfig> {
  EngineConfig config;
  config.model_path = embedded_model();
  config.context = 64;
  config.threads = static_cast<std::uint32_t>(std::stoul(values[0]));
  MILLRACE_ASSIGN(config.cache, parse_size(values[1]));
  return config;
};

SweepOptions sweep_of(const std::vector<SweepAxis>& axes) {
  SweepOptions options;
  options.axes = axes;
  auto settings = sweep_settings(axes, config_of);
  REQUIRE(settings);
  options.settings = *std::move(settings);
  options.prompt = "Once upon a time";
  options.tokens = 6;
  options.warmup_tokens = 4;
  options.repeat = 2;
  return options;
}

Result<SweepResult> sweep(const SweepOptions& options, bool cancelled = false) {
  ProgressLine progress(false);
  const std::atomic<bool> cancel = cancelled;
  return run_sweep(options, progress, cancel);
}

}  // namespace

TEST_CASE("sweep: every combination is made once, the last axis changing fastest") {
  const auto made =
      sweep_settings({{"--threads", {"1", "2", "1"}}, {"--cache", {"1G", "2G"}}}, config_of);
  REQUIRE(made);
  REQUIRE(made->size() == 4);
  CHECK((*made)[1].values == std::vector<std::string>{"1", "2G"});
  CHECK((*made)[2].values == std::vector<std::string>{"2", "1G"});
  CHECK((*made)[2].config.threads == 2);
  CHECK((*made)[2].config.cache.bytes == 1 * GiB);
}

TEST_CASE("sweep: an axis without values, a bad value and too many combinations are refused") {
  const auto refusal = [](const std::vector<SweepAxis>& axes) {
    const auto made = sweep_settings(axes, config_of);
    REQUIRE_FALSE(made);
    CHECK(made.error().code == ErrorCode::usage);
    return made.error().what;
  };
  CHECK(refusal({{"--threads", {}}, {"--cache", {"1G"}}}).starts_with("--threads"));
  CHECK(refusal({{"--threads", {"1"}}, {"--cache", {"much"}}}).find("much") != std::string::npos);
  std::vector<std::string> many;
  for (int i = 1; i <= 257; ++i) many.push_back(std::to_string(i));
  CHECK(refusal({{"--threads", many}, {"--cache", {"1G"}}}).find("256") != std::string::npos);
}

TEST_CASE("sweep: each setting is run in each round, beside its limits, with the same logits") {
  const SweepOptions options = sweep_of(two_axes);
  const auto made = sweep(options);
  REQUIRE(made);
  CHECK_FALSE(made->interrupted);
  REQUIRE(made->rows.size() == 4);
  CHECK(made->same_state());
  for (std::size_t i = 0; i < 4; ++i) {
    INFO(options.settings[i].values[0] << " threads, cache " << options.settings[i].values[1]);
    const SweepRow& row = made->rows[i];
    CHECK(row.refused.empty());
    REQUIRE(row.runs.size() == 2);
    for (const SweepRun& run : row.runs) {
      CHECK(run.tokens_per_second > 0);
      CHECK(run.memory_tokens_per_second > 0);
      CHECK(run.hit_rate <= 1);
      CHECK(run.stalled_share <= 1);
    }
  }
  // The smaller cache reads more, and hits are counted the same however fast it went.
  CHECK(made->rows[0].runs[0].bytes_per_token > made->rows[1].runs[0].bytes_per_token);
  CHECK(made->rows[0].runs[0].hit_rate == made->rows[2].runs[1].hit_rate);
  const std::string table = sweep_table(options, *made);
  for (const char* const part : {"Little Tales", "threads", "25%", "100%", "floor", "in all runs"})
    CHECK(table.find(part) != std::string::npos);
  CHECK(sweep_json(options, *made).find("rows")->as_array()->size() == 4);
  const std::string picture = sweep_svg(options, *made);
  CHECK(picture.starts_with("<svg"));
  CHECK(picture.find("25%: limit") != std::string::npos);
}

TEST_CASE("sweep: one setting is a bar with its limit") {
  const SweepOptions options = sweep_of({{"--threads", {"1"}}, {"--cache", {"50%"}}});
  const auto made = sweep(options);
  REQUIRE(made);
  CHECK(sweep_svg(options, *made).find("this setting") != std::string::npos);
  CHECK(sweep_table(options, *made).find("fixed") != std::string::npos);
}

TEST_CASE("sweep: a setting that has no plan is a row with the reason, the others are run") {
  const auto made = sweep(sweep_of({{"--threads", {"1"}}, {"--cache", {"4K", "50%"}}}));
  REQUIRE(made);
  CHECK(made->rows[0].runs.empty());
  CHECK(made->rows[0].refused.find("--cache") != std::string::npos);
  CHECK(made->rows[1].runs.size() == 2);
  const auto none = sweep(sweep_of({{"--threads", {"1"}}, {"--cache", {"4K"}}}));
  REQUIRE_FALSE(none);
  CHECK(none.error().code == ErrorCode::memory);
}

TEST_CASE("sweep: nothing to run, to measure or to say is refused, and so is what is cancelled") {
  const auto error_of = [](auto change) {
    SweepOptions options = sweep_of({{"--threads", {"1"}}, {"--cache", {"50%"}}});
    change(options);
    const auto made = sweep(options);
    REQUIRE_FALSE(made);
    CHECK(made.error().code == ErrorCode::usage);
    return made.error().what;
  };
  CHECK(error_of([](SweepOptions& o) { o.repeat = 0; }).starts_with("--repeat 0"));
  CHECK(error_of([](SweepOptions& o) { o.tokens = 0; }).starts_with("-n 0"));
  CHECK(error_of([](SweepOptions& o) { o.prompt.clear(); }).find("prompt") != std::string::npos);
  CHECK(error_of([](SweepOptions& o) { o.settings.clear(); }).find("nothing") != std::string::npos);
  CHECK(error_of([](SweepOptions& o) { o.warmup_tokens = 100; }).find("warm-up") !=
        std::string::npos);
  const auto cancelled = sweep(sweep_of(two_axes), true);
  REQUIRE_FALSE(cancelled);
  CHECK(cancelled.error().code == ErrorCode::cancelled);
}

TEST_CASE("sweep: the spread is the median and the range") {
  std::vector<SweepRun> runs(4);
  for (std::size_t i = 0; i < 4; ++i) runs[i].tokens_per_second = static_cast<double>(10 - i);
  const Spread even = spread_of(runs, &SweepRun::tokens_per_second);
  CHECK(even.low == 7);
  CHECK(even.median == 8.5);
  CHECK(even.high == 10);
  runs.pop_back();
  CHECK(spread_of(runs, &SweepRun::tokens_per_second).median == 9);
  CHECK(spread_of({}, &SweepRun::tokens_per_second).median == 0);
}
