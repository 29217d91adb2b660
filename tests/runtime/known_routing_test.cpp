// What is kept of a model's routing between runs, and what plans make of it.
#include "runtime/estimate/known_routing.h"

#include <sys/stat.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>

#include "model/format/open.h"
#include "runtime/estimate/estimate.h"
#include "runtime/generate.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_engine.h"

using namespace millrace;
using namespace millrace::test;
using millrace::testing::TempFolder;

namespace {

ModelSpec spec_of(const std::string& path) {
  const auto checkpoint = open_checkpoint(path);
  REQUIRE(checkpoint);
  auto spec = read_model_spec(*checkpoint);
  REQUIRE(spec);
  return *std::move(spec);
}

std::string key_of(const std::string& path) {
  const auto key = routing_key(spec_of(path));
  REQUIRE(key);
  return *key;
}

// `tokens` tokens through layers 0 and 1, each choosing four experts of eight from its number on.
RoutingTail tail_of(std::uint32_t layers, std::uint64_t tokens, std::uint32_t step) {
  RoutingTail tail(layers, 4);
  for (std::uint64_t token = 0; token < tokens; ++token) {
    for (LayerIndex layer = 0; layer < layers; ++layer) {
      const auto first = static_cast<ExpertIndex>(token * step % 5);
      const ExpertIndex experts[] = {first, first + 1, first + 2, first + 3};
      tail.record(layer, experts);
    }
  }
  return tail;
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

}  // namespace

TEST_CASE("known routing: what a run's routers chose is kept, as --trace wrote it") {
  const TempFolder folder;
  EngineConfig config;
  config.model_path = embedded_model();
  config.context = 128;
  config.profile_folder = folder.path("kept");
  const auto running = open_engine(config);
  GenerateOptions options;
  options.prompt = {300, 400, 500};
  options.tokens_max = 48;
  options.ignore_eos = true;
  options.sampling.temperature = 0;
  options.trace_path = folder.path("trace.csv");
  const auto result = generate(*running->engine, options, [](std::string_view) {});
  REQUIRE(result);
  const ModelSpec& spec = running->engine->spec();
  const auto kept = load_routing(config.profile_folder, running->engine->routing_key(), spec);
  REQUIRE(kept);
  auto traced = read_routing(options.trace_path);
  REQUIRE(traced);
  const auto decoded = decoded_part(*std::move(traced), options.trace_path, spec);
  REQUIRE(decoded);
  REQUIRE(kept->rows.size() == std::size_t{47} * spec.hparams.layers);
  REQUIRE(kept->rows.size() == decoded->rows.size());
  for (std::size_t i = 0; i < kept->rows.size(); ++i) {
    const auto ours = kept->experts_of(kept->rows[i]);
    const auto theirs = decoded->experts_of(decoded->rows[i]);
    CHECK(kept->rows[i].layer == decoded->rows[i].layer);
    CHECK(std::vector(ours.begin(), ours.end()) == std::vector(theirs.begin(), theirs.end()));
  }
}

TEST_CASE("known routing: the newest tokens stay, behind those of earlier runs") {
  const TempFolder folder;
  const ModelSpec spec = spec_of(embedded_model());
  const std::uint32_t layers = spec.hparams.layers;
  RoutingRecord record;
  tail_of(layers, known_tokens_max + 7, 1).append_to(record, 0);
  REQUIRE(record.rows.size() == std::size_t{known_tokens_max} * layers);
  CHECK(record.experts_of(record.rows.front()).front() == 7 % 5);

  const std::string kept = folder.path("kept");
  REQUIRE(save_routing(kept, "k", spec, tail_of(layers, known_tokens_min - 1, 1)));
  CHECK_FALSE(load_routing(kept, "k", spec));  // too few
  REQUIRE(save_routing(kept, "k", spec, tail_of(layers, 40, 0)));
  REQUIRE(save_routing(kept, "k", spec, tail_of(layers, 50, 1)));
  const auto both = load_routing(kept, "k", spec);
  REQUIRE(both);
  CHECK(both->rows.size() == std::size_t{90} * layers);
  CHECK(both->experts_of(both->rows.back()).front() == 49 % 5);
  REQUIRE(save_routing(kept, "k", spec, tail_of(layers, known_tokens_max - 1, 1)));
  const auto full = load_routing(kept, "k", spec);
  REQUIRE(full);
  CHECK(full->rows.size() == std::size_t{known_tokens_max} * layers);
}

TEST_CASE("known routing: what an interrupted run leaves is read again behind the next one") {
  const TempFolder folder;
  const ModelSpec spec = spec_of(embedded_model());
  const std::uint32_t layers = spec.hparams.layers;
  const std::string kept = folder.path("kept");
  RoutingTail interrupted = tail_of(layers, 40, 1);
  const ExpertIndex experts[] = {0, 1, 2, 3};
  interrupted.record(0, experts);
  REQUIRE(save_routing(kept, "k", spec, interrupted));
  REQUIRE(save_routing(kept, "k", spec, tail_of(layers, 50, 1)));
  const auto both = load_routing(kept, "k", spec);
  REQUIRE(both);
  CHECK(both->rows.size() == std::size_t{90} * layers);
}

TEST_CASE("known routing: damaged files, and those of another model, are ignored") {
  const TempFolder folder;
  const ModelSpec spec = spec_of(embedded_model());
  CHECK_FALSE(load_routing(folder.path(""), "k", spec));
  CHECK_FALSE(load_routing("", "k", spec));
  folder.write("routing-k.csv", "junk\n");
  CHECK_FALSE(load_routing(folder.path(""), "k", spec));
  folder.write("routing-k.csv",
               "# n_layer=2 n_expert=8 n_expert_used=2\nturn,phase,step,layer,experts,weights\n"
               "0,1,0,0,0 1,0.5 0.5\n");
  CHECK_FALSE(load_routing(folder.path(""), "k", spec));
  const std::string path = folder.path("routing-k.csv");
  std::filesystem::remove(path);  // a pipe is not waited for, and gives way
  REQUIRE(mkfifo(path.c_str(), 0600) == 0);
  REQUIRE(mkfifo((path + ".new").c_str(), 0600) == 0);
  CHECK_FALSE(load_routing(folder.path(""), "k", spec));
  REQUIRE(save_routing(folder.path(""), "k", spec, tail_of(spec.hparams.layers, 40, 0)));
  CHECK(load_routing(folder.path(""), "k", spec));
}

TEST_CASE("known routing: models that differ in a router alone have keys of their own") {
  const TempFolder folder;
  const ModelSpec spec = spec_of(embedded_model());
  std::string bytes = bytes_of(embedded_model());
  const std::string same = folder.write("same.gguf", bytes);
  CHECK(key_of(same) == key_of(embedded_model()));
  const auto& router = spec.layers.back().matrix(MatrixRole::router);
  REQUIRE(router);
  bytes[router->offset_bytes] = static_cast<char>(bytes[router->offset_bytes] ^ 1);
  CHECK(key_of(folder.write("other.gguf", bytes)) != key_of(embedded_model()));
}

TEST_CASE("known hits: all where the same experts come again, the range in order elsewhere") {
  const ModelSpec spec = spec_of(embedded_model());
  const std::vector<std::uint32_t> blocks(spec.files.size(), 4096);
  const SlotLayout layout(spec.experts, blocks);
  const std::uint32_t top_k = spec.hparams.experts_used;
  RoutingRecord same, turning;
  for (RoutingRecord* record : {&same, &turning})
    record->header = {"", "", spec.hparams.layers, spec.hparams.experts, top_k, {}, 1};
  tail_of(spec.hparams.layers, 64, 0).append_to(same, 0);
  tail_of(spec.hparams.layers, 64, 1).append_to(turning, 0);
  const auto hits = [&](const RoutingRecord& record, double share) {
    const auto plan = plan_slots(
        layout, static_cast<std::uint64_t>(share * static_cast<double>(spec.experts.pool_bytes())),
        top_k);
    REQUIRE(plan);
    return known_hits(record, layout, *plan, top_k, "lru");
  };
  CHECK(hits(same, 0.25).middle == 1);
  const HitRange little = hits(turning, 0.14), more = hits(turning, 0.4);
  CHECK(little.low <= little.middle);
  CHECK(little.middle <= little.high);
  CHECK(little.middle < more.middle);
  CHECK(more.middle == 1);  // eight experts a layer, and room for more
}

TEST_CASE("A layer takes no less than its computing, and less the more is guessed ahead") {
  const LayerCost all_there{1e-3, 2e-3, 0.5e-3, 0, 1e-3};
  CHECK(layer_seconds(all_there, 0) == Approx(3e-3));
  LayerCost missing = all_there;
  missing.read_seconds = 10e-3;
  CHECK(layer_seconds(missing, 0) == Approx(1e-3 + 1e-3 + 10e-3 + 0.5e-3));
  CHECK(layer_seconds(missing, 1) == Approx(10e-3));
  CHECK(layer_seconds(missing, 0.5) == Approx((12.5e-3 + 10e-3) / 2));
  missing.read_seconds = 0.1e-3;
  CHECK(layer_seconds(missing, 0) == Approx(3e-3));  // hidden behind the experts that are there
}

TEST_CASE("A cache larger than what the known routing asks for is not planned") {
  const TempFolder folder;
  std::string trace =
      "# n_layer=16 n_expert=64 n_expert_used=8\n"
      "turn,phase,step,layer,experts,weights\n";
  for (int step = 0; step < 40; ++step)
    for (int layer = 0; layer < 16; ++layer)
      trace += "0,1," + std::to_string(step) + "," + std::to_string(layer) +
               ",0 1 2 3 4 5 6 7,1 1 1 1 1 1 1 1\n";
  EstimateOptions options;
  options.model = "olmoe-1b-7b";
  options.type = "q8_0";
  options.ram_bytes = {5 * GiB};
  options.config.threads = 1;
  const auto unknown = estimate_model(options);
  REQUIRE(unknown);
  options.routing_path = folder.write("t.csv", trace);
  const auto known = estimate_model(options);
  REQUIRE(known);
  const Budget &wide = unknown->budgets.front(), &narrow = known->budgets.front();
  CHECK(wide.prediction.size_reason == "as large as fits");
  CHECK(narrow.plan.slots.bytes < wide.plan.slots.bytes / 2);
  CHECK(narrow.prediction.size_reason.find("less than 1 %") != std::string::npos);
  CHECK(narrow.prediction.hits.middle == 1);
  CHECK(narrow.prediction.hits_from == "this model's routing of 40 tokens");
  // Not the speeds: each of the two measured how fast this machine computes just then.
  CHECK(narrow.prediction.drive_bytes_per_token < wide.prediction.drive_bytes_per_token);
  options.routing_path = folder.write("o.csv",
                                      "# n_layer=99 n_expert=64 n_expert_used=8\n"
                                      "turn,phase,step,layer,experts,weights\n"
                                      "0,1,0,0,0 1 2 3 4 5 6 7,1 1 1 1 1 1 1 1\n");
  const auto other = estimate_model(options);
  REQUIRE_FALSE(other);
  CHECK(other.error().what.find("another model") != std::string::npos);
}
