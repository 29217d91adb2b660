// Hidden; `oracle_tests "[table]"` prints how far each model of the larger set is from the
// independent engine, beside how far that engine is from itself and from double precision.
#include <catch2/catch.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/support/oracle_folder.h"
#include "tests/support/oracle_run.h"

using namespace millrace;
using namespace millrace::test;

namespace {

// Greedy steps that are the oracle's before the first other one.
std::size_t equal_steps(const OracleFolder& oracle, const std::vector<TokenId>& ours) {
  std::size_t step = 0;
  while (step < ours.size() && step < oracle.greedy.size() && ours[step] == oracle.greedy[step])
    ++step;
  return step;
}

void print_row(const OracleFolder& oracle) {
  const std::vector<bool> none(oracle.positions, false);
  const auto steps = static_cast<std::uint32_t>(oracle.greedy.size());
  const OracleRun exact = run_oracle(oracle, {ActivationMode::f32, KvType::f32, false, steps});
  const OracleError exact_error = error_of(oracle, exact, none);
  const std::size_t dash = oracle.name.find('-');
  std::printf("%-14s %-15s %6.2f | %8.1e %8.1e %8.1e %3zu/%u |",
              oracle.name.substr(0, dash).c_str(), oracle.name.substr(dash + 1).c_str(),
              oracle.deviation, exact_error.rms / oracle.deviation, exact_error.max,
              oracle.reference_max, equal_steps(oracle, exact.greedy), steps);
  if (oracle.quantized) {
    const OracleRun rounded = run_oracle(oracle, {ActivationMode::q8, KvType::f16, false, 0});
    const std::vector<bool> flipped = flipped_positions(oracle, rounded);
    const OracleError error = error_of(oracle, rounded, flipped);
    std::size_t flips = 0;
    for (const bool each : flipped) flips += each ? 1 : 0;
    std::printf(" %7.4f %7.4f %5.2f %7.3f %7.3f %3zu/%zu", error.rms, oracle.peer_rounding_rms,
                error.rms / oracle.peer_rounding_rms, error.max, oracle.peer_rounding_max, flips,
                oracle.positions);
  }
  std::printf("\n");
}

}  // namespace

TEST_CASE("table of all models of the larger set: errors beside the other engine's own",
          "[.table]") {
  const std::string folder = MILLRACE_ORACLES;
  REQUIRE_FALSE(folder.empty());
  std::printf(
      "std: deviation of the logits. Unrounded activations, F32 KV: rms / std, largest error, the\n"
      "other engine's largest error against float64, greedy ids equal. 8-bit activations, F16 KV:\n"
      "rms, the other engine's own rms by rounding, ratio, largest errors of both, positions\n"
      "whose experts flipped (left out).\n"
      "family         types              std |  rms/std      max      f64  greedy |     rms    "
      "peer "
      "ratio     max    peer  flips\n");
  for (const std::string& name : list_oracles(folder))
    if (is_supported_oracle(name)) print_row(read_oracle(folder + "/" + name));
}
