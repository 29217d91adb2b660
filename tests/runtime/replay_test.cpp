// Replay against runs: a run's own trace, replayed, counts exactly what the run counted.
#include <catch2/catch.hpp>
#include <fstream>

#include "prefetch/eviction_policy.h"
#include "prefetch/replay.h"
#include "runtime/generate.h"
#include "runtime/replay_study.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_engine.h"

using namespace millrace;
using namespace millrace::testing;
using namespace millrace::test;

namespace {

struct Run {
  LoaderStats prompt, decode;
  std::uint64_t cache_bytes = 0;
};

// 40 prompt tokens in parts of at most `batch`, 40 more generated.
Run run_with_trace(const std::string& policy, double percent, std::uint32_t batch,
                   const std::string& path) {
  EngineConfig config;
  config.model_path = embedded_model();
  config.policy = policy;
  config.cache = {SizeSpec::Kind::percent, 0, percent};
  config.batch_tokens = batch;
  config.context = 128;
  const auto running = open_engine(config);
  GenerateOptions options;
  for (TokenId id = 0; id < 40; ++id) options.prompt.push_back(300 + id * 7);
  options.tokens_max = 40;
  options.sampling.temperature = 0;
  options.ignore_eos = true;
  options.trace_path = path;
  const auto result = generate(*running->engine, options, [](std::string_view) {});
  REQUIRE(result);
  REQUIRE_FALSE(result->error);
  return {result->prompt.counters.experts, result->decode.counters.experts,
          running->engine->plan().slots.bytes};
}

}  // namespace

TEST_CASE("replay: a run's own trace gives exactly the hits and misses that the run counted") {
  const TempFolder folder;
  const std::string path = folder.path("trace.csv");
  for (const char* const policy : eviction_policy_names()) {
    // Parts small enough that a layer's experts find their slots at once.
    for (const auto& [percent, batch] : {std::pair(12.5, 1u), {30.0, 6u}, {60.0, 16u}}) {
      INFO(policy << " at " << percent << " %, -ub " << batch);
      const Run run = run_with_trace(policy, percent, batch, path);
      REQUIRE(run.prompt.waits + run.decode.waits == 0);
      ReplayOptions options;
      options.trace_path = path;
      options.model_path = embedded_model();
      options.policies = {policy};
      options.capacities = {{SizeSpec::Kind::percent, 0, percent}};
      const auto study = study_replay(options);
      REQUIRE(study);
      const ReplayRow& row =
          study->rows.back().policy == policy ? study->rows.back() : study->rows[1];
      CHECK(row.policy == policy);
      CHECK(row.cache_bytes == run.cache_bytes);
      CHECK(row.prompt_hits == run.prompt.hits);
      CHECK(row.prompt_misses == run.prompt.misses);
      CHECK(row.decode_hits == run.decode.hits);
      CHECK(row.decode_misses == run.decode.misses);
      CHECK(run.decode.hits > 0);
      CHECK(run.decode.misses > 0);
      CHECK(study->tokens == 40 + 39);
    }
  }
}

TEST_CASE("replay: prices lie between nothing and everything overlapped, and follow the drive") {
  const TempFolder folder;
  std::string text =
      "# model=M arch=any n_layer=2 n_expert=8 n_expert_used=2 expert_bytes=3000000\n"
      "turn,phase,step,layer,experts,weights\n";
  for (int step = 0; step < 60; ++step)
    for (int layer = 0; layer < 2; ++layer) {
      const int first = (step * 3 + layer) % 8;
      text += "0,1," + std::to_string(step) + "," + std::to_string(layer) + "," +
              std::to_string(first) + " " + std::to_string((first + 1) % 8) + ",0.5 0.5\n";
    }
  ReplayOptions options;
  options.trace_path = folder.write("t.csv", text);
  options.capacities = {{SizeSpec::Kind::percent, 0, 50}, {SizeSpec::Kind::all, 0, 0}};
  options.drive_bytes_per_second = 1e9;
  options.compute_seconds = 0.004;
  const auto study = study_replay(options);
  REQUIRE(study);
  for (const ReplayRow& row : study->rows) {
    INFO(row.policy);
    CHECK(row.tokens_per_second_low <= row.tokens_per_second * (1 + 1e-9));
    CHECK(row.tokens_per_second <= row.tokens_per_second_high * (1 + 1e-9));
    const double read = row.bytes_per_token / 1e9;
    CHECK(row.tokens_per_second_low == Approx(1 / (read + 0.004)));
    if (row.capacity.kind == SizeSpec::Kind::all) {
      CHECK(row.bytes_per_token == 0);
      CHECK(row.tokens_per_second == Approx(250));
    }
  }
  options.drive_bytes_per_second = 2e9;
  const auto faster = study_replay(options);
  REQUIRE(faster);
  CHECK(faster->rows[1].tokens_per_second > study->rows[1].tokens_per_second);
  options.ahead = 1;
  const auto guessed = study_replay(options);
  REQUIRE(guessed);
  // A cache with slots to spare for guesses is priced without these; the others are not.
  for (const ReplayRow& row : guessed->rows) {
    const bool spares = row.capacity.kind != SizeSpec::Kind::all && row.slots > 4;
    CHECK((row.priced_slots < row.slots) == spares);
  }
  CHECK(replay_table(*guessed).find(", with ") != std::string::npos);
  CHECK(replay_table(*faster).find("with N slots") == std::string::npos);
  options.head_share = 0.5;  // hides no reads
  const auto headed = study_replay(options);
  REQUIRE(headed);
  CHECK(headed->rows[1].tokens_per_second < guessed->rows[1].tokens_per_second);
  options.capacities.insert(options.capacities.begin(), {SizeSpec::Kind::percent, 0, 1});
  CHECK_FALSE(study_replay(options));
  options.skip_small = true;
  const auto skipped = study_replay(options);
  REQUIRE(skipped);
  CHECK(skipped->rows.size() == headed->rows.size());
  CHECK(skipped->note.find("1% is left out") != std::string::npos);
  ReplayOptions only_small = options;
  only_small.capacities.resize(1);
  CHECK_FALSE(study_replay(only_small));  // no table without a row
  options.warmup = 0.9999;
  const auto last = study_replay(options);
  REQUIRE(last);
  CHECK(last->warm_tokens == 1);
}

TEST_CASE("replay: what cannot be replayed is refused with its reason") {
  const TempFolder folder;
  const std::string columns = "turn,phase,step,layer,experts,weights\n";
  const std::string rows = columns + "0,1,0,0,0 1 2 3,0.4 0.3 0.2 0.1\n";
  const std::string known = "# n_layer=6 n_expert=32 n_expert_used=4 expert_bytes=4096\n";
  ReplayOptions options;
  options.capacities = {{SizeSpec::Kind::percent, 0, 25}};
  const auto refusal = [&](const std::string& text) {
    options.trace_path = folder.write("t.csv", text);
    const auto study = study_replay(options);
    REQUIRE_FALSE(study);
    CHECK(study.error().code == ErrorCode::usage);
    return study.error().what;
  };
  const auto has = [](const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
  };
  has(refusal(rows), "--expert-bytes");
  options.model_path = embedded_model();
  has(refusal("# n_layer=7 n_expert=32 n_expert_used=4\n" + rows), "7 layers, the model has 6");
  has(refusal("# n_layer=6 n_expert=64 n_expert_used=4\n" + rows), "64 experts");
  has(refusal("# n_layer=6 n_expert=32 n_expert_used=8\n" + columns +
              "0,1,0,0,0 1 2 3 4 5 6 7,1 1 1 1 1 1 1 1\n"),
      "8 experts a token");
  has(refusal("# arch=gpt-oss n_layer=6 n_expert=32 n_expert_used=4\n" + rows), "gpt-oss");
  options.model_path.clear();
  options.policies = {"best"};
  has(refusal(known + rows), "--policy best");
  options.policies.clear();
  options.capacities = {{SizeSpec::Kind::percent, 0, 0}};
  has(refusal(known + rows), "--capacity 0");
  options.capacities = {{SizeSpec::Kind::percent, 0, 0.5}};
  has(refusal(known + rows), "smallest");
  options.capacities = {};
  has(refusal(known + rows), "--capacity");
  options.capacities = {{SizeSpec::Kind::percent, 0, 25}};
  options.warmup = 1;
  has(refusal(known + rows), "--warmup");
}

TEST_CASE("trace summary: reuse and skew are what the rows say") {
  const auto record = parse_routing(
      "# n_layer=1 n_expert=20 n_expert_used=2\nturn,phase,step,layer,experts,weights\n"
      "0,1,0,0,0 1,0.5 0.5\n0,1,1,0,0 2,0.5 0.5\n0,1,2,0,0 2,0.5 0.5\n",
      "t");
  REQUIRE(record);
  const TraceSummary summary = summarise(*record);
  CHECK(summary.decode_tokens == 3);
  CHECK(summary.choices == 6);
  CHECK(summary.reuse == Approx(0.75));
  CHECK(summary.experts_seen == 3);
  CHECK(summary.experts_all == 20);
  CHECK(summary.top_tenth == Approx(5.0 / 6));
}
