// A folder with a model and what an independent engine makes of it (tests/oracles/README.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/base/ids.h"

namespace millrace::test {

struct OracleFolder {
  std::string name, path, model_path;
  std::vector<TokenId> prompt;
  std::size_t positions = 0, vocabulary = 0;
  double deviation = 0;          // standard deviation of the logits
  bool quantized = false;        // the file's own logits differ from those of its decoded weights
  std::vector<float> logits;     // of the decoded weights, positions x vocabulary
  double peer_rounding_rms = 0;  // the engine's own error with rounded activations
  double peer_rounding_max = 0;
  double reference_max = 0;     // the engine's largest error against a pass in double precision
  std::vector<TokenId> greedy;  // of the decoded weights
  std::vector<double> greedy_margin;
  std::map<int, std::vector<std::vector<ExpertIndex>>>
      experts;  // layer -> position -> ascending ids
};

// Reads the folder; throws std::runtime_error with the file in question (a broken test
// installation).
OracleFolder read_oracle(const std::string& path);
// Names of the sub-folders of `path` that hold a model.gguf, sorted.
std::vector<std::string> list_oracles(const std::string& path);
std::vector<float> read_floats(const std::string& path);
std::string read_bytes(const std::string& path);

}  // namespace millrace::test
