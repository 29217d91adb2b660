// Logits and greedy ids against an independent engine's, over the models in tests/oracles and, when
// the build was given a larger set (-Doracles=), over all of that whose family and types are
// supported.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/oracle_folder.h"
#include "tests/support/oracle_run.h"

using namespace millrace;
using namespace millrace::test;

namespace {

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
  const OracleRun exact = run_oracle(oracle, {ActivationMode::f32, KvType::f32, false, 32});
  REQUIRE(exact.rows.size() == oracle.logits.size());
  const double exact_error = error_of(oracle, exact, none).rms / oracle.deviation;
  std::string figures =
      oracle.name + ": exact rms " + std::to_string(exact_error * 1e6) + "e-6 of the deviation";
  CHECK(exact_error < 1e-4);
  check_greedy(oracle, exact.greedy, 1e-3);
  if (!oracle.experts.empty()) CHECK(exact.experts == oracle.experts);

  const OracleRun stepwise = run_oracle(oracle, {ActivationMode::f32, KvType::f32, true, 32});
  CHECK(std::memcmp(stepwise.rows.data(), exact.rows.data(), exact.rows.size() * sizeof(float)) ==
        0);
  CHECK(stepwise.greedy == exact.greedy);

  const OracleRun rounded = run_oracle(oracle, {ActivationMode::q8, KvType::f16, false, 1});
  const OracleRun rounded_stepwise = run_oracle(oracle, {ActivationMode::q8, KvType::f16, true, 1});
  CHECK(std::memcmp(rounded.rows.data(), rounded_stepwise.rows.data(),
                    rounded.rows.size() * sizeof(float)) == 0);
  if (oracle.quantized && oracle.peer_rounding_rms > 0) {
    const std::vector<bool> flipped = flipped_positions(oracle, rounded);
    const auto flips = static_cast<std::size_t>(std::count(flipped.begin(), flipped.end(), true));
    const double error = error_of(oracle, rounded, flipped).rms;
    figures += ", q8 rms " + std::to_string(error / oracle.peer_rounding_rms) + " of the peer's, " +
               std::to_string(flips) + " of " + std::to_string(oracle.positions) +
               " positions flipped";
    CHECK(error <= 1.5 * oracle.peer_rounding_rms);
    CHECK(flips <= std::max<std::size_t>(1, oracle.positions / 30));
  }
  WARN(figures);
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
    if (!is_supported_oracle(name)) continue;
    check_oracle(read_oracle(folder + "/" + name));
    ++count;
  }
  CHECK(count >= 10);
}
