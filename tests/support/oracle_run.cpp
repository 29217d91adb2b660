#include "tests/support/oracle_run.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/evaluate.h"
#include "tests/support/test_engine.h"

namespace millrace::test {

OracleRun run_oracle(const OracleFolder& oracle, const OracleSettings& settings) {
  EngineConfig config;
  config.model_path = oracle.model_path;
  config.activations = settings.activations;
  config.kv = settings.kv;
  config.threads = 2;
  const auto engine = open_engine(config);
  OracleRun out;
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
      *engine->engine, {oracle.prompt, settings.one_by_one, settings.greedy},
      [&](std::size_t, const float* row) {
        out.rows.insert(out.rows.end(), row, row + oracle.vocabulary);
        return true;
      },
      out.greedy);
  if (!done) FAIL(oracle.name << ": " << done.error().what);
  return out;
}

std::vector<bool> flipped_positions(const OracleFolder& oracle, const OracleRun& run) {
  std::vector<bool> flipped(oracle.positions, false);
  for (const auto& [layer, positions] : oracle.experts)
    for (std::size_t t = 0; t < positions.size(); ++t)
      if (run.experts.at(layer).at(t) != positions[t]) flipped[t] = true;
  return flipped;
}

OracleError error_of(const OracleFolder& oracle, const OracleRun& run,
                     const std::vector<bool>& leave_out) {
  OracleError error;
  double squares = 0;
  std::size_t count = 0;
  for (std::size_t i = 0; i < run.rows.size(); ++i) {
    if (leave_out[i / oracle.vocabulary]) continue;
    const double difference = double{run.rows[i]} - double{oracle.logits[i]};
    squares += difference * difference;
    error.max = std::max(error.max, std::abs(difference));
    ++count;
  }
  error.rms = std::sqrt(squares / static_cast<double>(count));
  return error;
}

bool is_supported_oracle(const std::string& name) {
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

}  // namespace millrace::test
