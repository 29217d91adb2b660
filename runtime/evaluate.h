// Checking a model: logits of given ids, greedy continuation, perplexity.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/function_ref.h"
#include "runtime/base/result.h"
#include "runtime/engine.h"

namespace millrace {

// Runs `ids` in a new session, as one prompt or token by token, and hands out the logits of every
// position in order (position, vocabulary floats). A false answer ends the run with an `io` error
// (the taker could not store them). Then, if greedy_count > 0, continues greedily (ties to the
// lower id, end tokens are no stop) and appends to greedy_ids.
struct LogitsRun {
  std::vector<TokenId> ids;
  bool one_by_one = false;
  std::uint32_t greedy_count = 0;
  std::string trace_path = {};  // routing as CSV; empty: none
};
// `usage` errors: no ids, ids outside the vocabulary, more positions than the context has.
// run_logits() checks the same; here before the trunk is read.
Status check_logits_run(const Engine& engine, const LogitsRun& run);
Status run_logits(Engine& engine, const LogitsRun& run,
                  FunctionRef<bool(std::size_t, const float*)> logits,
                  std::vector<TokenId>& greedy_ids);

struct PerplexityRun {
  std::uint32_t window = 0;       // tokens
  std::uint32_t windows_max = 0;  // 0: all
  std::string trace_path = {};    // routing as CSV, one turn a window; empty: none
};
struct Perplexity {
  double value = 0;          // exp of the mean negative log-probability
  double uncertainty = 0;    // one standard error of `value`
  std::uint64_t tokens = 0;  // of the text
  std::uint64_t scored = 0;
  std::uint32_t windows = 0;
};

// `usage` error if the text is shorter than one window, or a window longer than the context.
Status check_windows(const Engine& engine, std::size_t tokens, std::uint32_t window,
                     const std::string& text_name = "the text");

// Windows of run.window tokens, each from an empty context (its first token replaced by BOS where
// the model wants one); the second half is scored. At most windows_max windows (0: all). `progress`
// gets (windows done, windows in all, value so far). Errors as check_windows() and process().
Result<Perplexity> measure_perplexity(
    Engine& engine, std::span<const TokenId> ids, const PerplexityRun& run,
    FunctionRef<void(std::uint32_t, std::uint32_t, double)> progress);

// Reads {"ids": [...]} or [...]. `usage` errors name the file.
Result<std::vector<TokenId>> read_ids_file(const std::string& path);
// A whole file, or stdin for "-". `io` error with the path.
Result<std::string> read_text_file(const std::string& path);

}  // namespace millrace
