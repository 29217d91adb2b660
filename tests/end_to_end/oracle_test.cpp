// Logits and greedy ids against an independent engine's, over the models in tests/oracles and, when
// the build was given a larger set (-Doracles=), over all of that whose family and types are
// supported.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "runtime/evaluate.h"
#include "tests/support/oracle_folder.h"
#include "tests/support/test_engine.h"

using namespace millrace;
using namespace millrace::test;

namespace {

struct Logits {
  std::vector<float> rows;
  std::vector<TokenId> greedy;
  std::map<int, std::vector<std::vector<ExpertIndex>>> experts;  // ascending ids
};

Logits run(const OracleFolder& oracle, ActivationMode activations, KvType kv, bool one_by_one,
           std::uint32_t greedy) {
  EngineConfig config;
  config.model_path = oracle.model_path;
  config.activations = activations;
  config.kv = kv;
  config.threads = 2;
  const auto engine = open_engine(config);
  Logits out;
  const auto sink = [&](const TokenPlace& place, LayerIndex layer,
                        std::span<const ExpertIndex> experts, std::span<const float>) {
    if (place.position >= oracle.prompt.size()) return;
    // Layers that choose by the token alone have no list.
    if (oracle.experts.count(static_cast<int>(layer)) == 0) return;
    std::vector<ExpertIndex> ids(experts.begin(), experts.end());
    std::sort(ids.begin(), ids.end());
    out.experts[static_cast<int>(layer)].push_back(ids);
  };
  const RoutingSink routing(sink);
  engine->engine->set_routing_sink(&routing);
  const auto done = run_logits(
      *engine->engine, {oracle.prompt, one_by_one, greedy},
      [&](std::size_t, const float* row) {
        out.rows.insert(out.rows.end(), row, row + oracle.vocabulary);
        return true;
      },
      out.greedy);
  if (!done) FAIL(oracle.name << ": " << done.error().what);
  return out;
}

double rms(const std::vector<float>& a, const std::vector<float>& b, std::size_t vocabulary,
           const std::vector<bool>& leave_out) {
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (leave_out[i / vocabulary]) continue;
    const double difference = double{a[i]} - double{b[i]};
    sum += difference * difference;
    ++count;
  }
  return std::sqrt(sum / static_cast<double>(count));
}

// Steps whose margin is too small to bind are where a comparison ends.
void check_greedy(const OracleFolder& oracle, const std::vector<TokenId>& ours, double margin_min) {
  for (std::size_t step = 0;
       step < oracle.greedy.size() && oracle.greedy_margin[step] >= margin_min; ++step) {
    INFO("greedy step " << step << " margin " << oracle.greedy_margin[step]);
    REQUIRE(ours.at(step) == oracle.greedy[step]);
  }
}

void check_oracle(const OracleFolder& oracle) {
  INFO(oracle.name);
  const std::vector<bool> none(oracle.positions, false);
  const Logits exact = run(oracle, ActivationMode::f32, KvType::f32, false, 32);
  REQUIRE(exact.rows.size() == oracle.logits.size());
  const double exact_error =
      rms(exact.rows, oracle.logits, oracle.vocabulary, none) / oracle.deviation;
  std::string figures =
      oracle.name + ": exact rms " + std::to_string(exact_error * 1e6) + "e-6 of the deviation";
  CHECK(exact_error < 1e-4);
  check_greedy(oracle, exact.greedy, 1e-3);
  if (!oracle.experts.empty()) CHECK(exact.experts == oracle.experts);

  const Logits stepwise = run(oracle, ActivationMode::f32, KvType::f32, true, 32);
  CHECK(std::memcmp(stepwise.rows.data(), exact.rows.data(), exact.rows.size() * sizeof(float)) ==
        0);
  CHECK(stepwise.greedy == exact.greedy);

  const Logits rounded = run(oracle, ActivationMode::q8, KvType::f16, false, 1);
  const Logits rounded_stepwise = run(oracle, ActivationMode::q8, KvType::f16, true, 1);
  CHECK(std::memcmp(rounded.rows.data(), rounded_stepwise.rows.data(),
                    rounded.rows.size() * sizeof(float)) == 0);
  if (oracle.quantized && oracle.peer_rounding_rms > 0) {
    std::vector<bool> flipped(oracle.positions, false);
    for (const auto& [layer, positions] : oracle.experts)
      for (std::size_t t = 0; t < positions.size(); ++t)
        if (rounded.experts.at(layer).at(t) != positions[t]) flipped[t] = true;
    const auto flips = static_cast<std::size_t>(std::count(flipped.begin(), flipped.end(), true));
    const double error = rms(rounded.rows, oracle.logits, oracle.vocabulary, flipped);
    figures += ", q8 rms " + std::to_string(error / oracle.peer_rounding_rms) + " of the peer's, " +
               std::to_string(flips) + " of " + std::to_string(oracle.positions) +
               " positions flipped";
    CHECK(error <= 1.5 * oracle.peer_rounding_rms);
    CHECK(flips <= std::max<std::size_t>(1, oracle.positions / 30));
  }
  WARN(figures);
}

// Folders of the larger set whose family and types are meant to be supported: nothing else may fail
// to open.
bool supported(const std::string& name) {
  static const std::vector<std::string> families = {
      "llama",  "mixtral", "qwen2",         "qwen2moe",  "qwen3moe",  "olmoe",
      "gptoss", "glm4moe", "deepseek2lite", "deepseek3", "deepseek4", "qwen35moe"};
  static const std::vector<std::string> types = {
      "f32",      "f16",           "bf16",           "q8_0",       "q4_0",
      "mxfp4",    "fusedqkv-q8_0", "fusedexps-q8_0", "mxfp4-bf16", "mla-f32",
      "mla-q8_0", "mxfp4-q8_0",    "groups-f32",     "q4_1",       "q5_0",
      "q5_1",     "iq4_nl",        "q4_k_m",         "q5_k",       "q6_k",
      "q2_k",     "q3_k",          "lq-q3_k_m",      "lq-q4_k_m",  "iq4_xs"};
  const std::size_t dash = name.find('-');
  if (dash == std::string::npos) return false;
  return std::count(families.begin(), families.end(), name.substr(0, dash)) > 0 &&
         std::count(types.begin(), types.end(), name.substr(dash + 1)) > 0;
}

}  // namespace

TEST_CASE("models in the repository give the independent engine's logits and greedy ids") {
  const std::string folder = MILLRACE_SOURCE_ROOT "/tests/oracles/models";
  const auto names = list_oracles(folder);
  REQUIRE(names.size() >= 5);
  for (const std::string& name : names) check_oracle(read_oracle(folder + "/" + name));
}

TEST_CASE(
    "all supported models of the larger set give the independent engine's logits and greedy ids") {
  const std::string folder = MILLRACE_ORACLES;
  if (folder.empty()) {
    WARN("no larger set was given (-Doracles=)");
    return;
  }
  std::size_t count = 0;
  for (const std::string& name : list_oracles(folder)) {
    if (!supported(name)) continue;
    check_oracle(read_oracle(folder + "/" + name));
    ++count;
  }
  CHECK(count >= 10);
}
