// How a model runs on this machine, learned from its runs: how long the computing of a token takes
// (beside its weights there are sharing among threads, starts of rows, experts that arrive one by
// one, other programs), and what the drive gives in the middle of it, where `millrace floor` had
// the machine for itself. Kept between runs beside the model's routing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/result.h"
#include "runtime/estimate/predict.h"

namespace millrace {

// What a pace holds for.
struct PaceKey {
  std::string_view folder;  // of what is kept; empty: nothing is
  std::string_view model;   // as routing_key()
  std::string_view isa;
  unsigned threads = 0;
  std::string drive = {};  // what it is read from and how; a rate holds for this alone
};

// What a run took.
struct PaceLesson {
  double compute_seconds = 0;         // of a token
  double drive_bytes_per_second = 0;  // measured between its tokens; 0: it was not
  double asked_bytes_per_second = 0;  // by drive_now() as it started; 0: it was not asked
};

// Bounds of what is believed, as a multiple of what the weights alone take by a measurement at the
// start, which is short, and true for that moment.
inline constexpr double pace_factor_min = 0.5, pace_factor_max = 4;
inline constexpr std::uint64_t pace_tokens_min = 32;  // that a run must decode to teach

// Nothing if none is kept for this key. A damaged file is ignored with a warning.
std::optional<KnownPace> load_pace(const PaceKey& key);
// Keeps what a run took: half of the new, half of what was known. `io` error.
Status save_pace(const PaceKey& key, const PaceLesson& lesson);
// The speed to expect of kernels in a run; `by_weights`: a token at the measured speed.
ComputeSpeed paced(const ComputeSpeed& measured, const TokenTimes& by_weights,
                   const std::optional<KnownPace>& pace) noexcept;
// What to expect of the drive, and the range widened to hold that: what it gave in runs; where it
// was asked a moment ago (drive_now(), bytes per second), the middle one of what its profile, the
// runs and that moment say, of two their geometric mean. In a run a drive gives less than when it
// is asked; where runs show how much less, profile and moment are lowered by that.
DriveRange paced(DriveRange profiled, const std::optional<KnownPace>& pace,
                 double now = 0) noexcept;

}  // namespace millrace
