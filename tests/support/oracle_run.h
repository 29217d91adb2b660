// Runs of the engine over an oracle's prompt, and how far they are from what the oracle holds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "model/blocks/linear.h"
#include "model/kv_cache.h"
#include "tests/support/oracle_folder.h"

namespace millrace::test {

struct OracleRun {
  std::vector<float> rows;  // positions x vocabulary
  std::vector<TokenId> greedy;
  std::map<int, std::vector<std::vector<ExpertIndex>>> experts;  // ascending ids
};

struct OracleSettings {
  ActivationMode activations = ActivationMode::f32;
  KvType kv = KvType::f32;
  bool one_by_one = false;
  std::uint32_t greedy = 0;  // steps behind the prompt
};

// Fails the running test with the message if there is an error.
OracleRun run_oracle(const OracleFolder& oracle, const OracleSettings& settings);

// Positions where some layer's experts are not the oracle's.
std::vector<bool> flipped_positions(const OracleFolder& oracle, const OracleRun& run);

// Differences from the oracle's logits of the decoded weights, positions of `leave_out` aside.
struct OracleError {
  double rms = 0, max = 0;
};
OracleError error_of(const OracleFolder& oracle, const OracleRun& run,
                     const std::vector<bool>& leave_out);

// Whether family and types of a folder's name are meant to be supported: nothing else may fail to
// open.
bool is_supported_oracle(const std::string& name);

}  // namespace millrace::test
