// A sweep: one model run with many settings by turns, again and again, so that a machine whose
// speed drifts is unfair to none of them; each setting beside what the drive and the memory allow.
// What `millrace bench` does.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/function_ref.h"
#include "runtime/base/json.h"
#include "runtime/base/result.h"
#include "runtime/config.h"
#include "runtime/progress.h"

namespace millrace {

// One setting's values, as typed: "--threads" with "1", "2", "4".
struct SweepAxis {
  std::string flag;
  std::vector<std::string> values;
};

// One combination of values, one of each axis, and the configuration that they make.
struct SweepSetting {
  std::vector<std::string> values;  // by axis
  EngineConfig config;
};

inline constexpr std::size_t sweep_settings_max = 256;

// All combinations, the last axis changing fastest; `make` turns values into a configuration. A
// value that stands twice counts once. `usage` errors: an axis without values, too many
// combinations, and what `make` says.
Result<std::vector<SweepSetting>> sweep_settings(
    const std::vector<SweepAxis>& axes,
    FunctionRef<Result<EngineConfig>(const std::vector<std::string>& values)> make);

struct SweepOptions {
  std::vector<SweepAxis> axes;
  std::vector<SweepSetting> settings;  // of one model; at least one
  std::string prompt;
  std::uint32_t tokens = 32;         // decoded and measured, per run
  std::uint32_t warmup_tokens = 16;  // decoded before
  std::uint32_t repeat = 3;          // runs per setting
};

// One run. Rates are of the measured tokens; 0 or negative: not known, as said.
struct SweepRun {
  double tokens_per_second = 0;
  double floor_tokens_per_second = 0;   // the missing bytes alone; 0: nothing missing, or not known
  double floor_share = -1;              // floor time ÷ achieved time; -1: likewise
  double memory_tokens_per_second = 0;  // all weights of a token read from memory, nothing else
  double hit_rate = 0;
  double bytes_per_token = 0;  // from the drive
  double stalled_share = 0;    // of the time
  double device_share = -1;    // of the bytes read; less than 1: the page cache gave the rest
  double predicted = 0;        // tokens per second, by the plan; 0: it did not say
  std::uint64_t state_hash = 0;
};

struct SweepRow {
  std::string refused;  // why the setting cannot be run; no runs then
  std::vector<SweepRun> runs;
};

struct SweepResult {
  std::string model, architecture;
  std::uint64_t pool_bytes = 0, trunk_bytes = 0;
  std::vector<SweepRow> rows;        // as the settings
  std::vector<std::string> notes;    // what the figures are not, and why
  std::optional<Error> interrupted;  // ended early: Ctrl-C, or a run failed
  // Whether all runs had the same logits, as they must.
  bool same_state() const;
};

// Runs each setting once per round, every second round backwards. Pages of the model's files are
// dropped from the page cache before each run. Errors before the first figure are errors of the
// call (`usage`: no prompt, zero repeats or tokens; a setting that none of them can run with);
// later ones end the sweep and stand in the result, as Ctrl-C does. One thread.
Result<SweepResult> run_sweep(const SweepOptions& options, ProgressLine& progress,
                              const std::atomic<bool>& cancel);

// Median of the runs and their range.
struct Spread {
  double low = 0, median = 0, high = 0;
};
Spread spread_of(const std::vector<SweepRun>& runs, double SweepRun::*figure);

std::string sweep_table(const SweepOptions& options, const SweepResult& result);
Json sweep_json(const SweepOptions& options, const SweepResult& result);
// Tokens per second against threads if they were swept, else a bar for each setting; the limits are
// drawn in. Empty if there is no run to draw.
std::string sweep_svg(const SweepOptions& options, const SweepResult& result);

}  // namespace millrace
