// How much longer than its weights alone a model's computing takes on this machine, learned from
// its runs: sharing among threads, starts of rows, experts that arrive one by one, other programs.
// Kept between runs beside the model's routing.
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
};

inline constexpr double pace_factor_min = 0.5, pace_factor_max = 4;
inline constexpr std::uint64_t pace_tokens_min = 32;  // that a run must decode to teach

// Nothing if none is kept for this key. A damaged file is ignored with a warning.
std::optional<KnownPace> load_pace(const PaceKey& key);
// Keeps what a run took to compute a token, `times` being what it would take by its weights: half
// of the new, half of what was known. `io` error.
Status save_pace(const PaceKey& key, const TokenTimes& times, double compute_seconds);
// The speed to expect of kernels in a run.
ComputeSpeed paced(ComputeSpeed measured, const std::optional<KnownPace>& pace) noexcept;

}  // namespace millrace
