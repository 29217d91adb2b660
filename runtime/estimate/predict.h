// Bytes and seconds per token to expect of a plan, as a range with its reasons. `estimate` prints
// it; the report of a run sets it beside what came true.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/drive_profile.h"
#include "model/model_spec.h"
#include "runtime/estimate/compute_speed.h"
#include "runtime/estimate/hit_curve.h"
#include "runtime/planner.h"

namespace millrace {

// What the drive gives, in bytes per second.
struct DriveRange {
  double low = 0, middle = 0, high = 0;
  bool measured = false;       // else: what drives give that people have
  double latency_seconds = 0;  // until a first piece is there, with nothing else in flight
};
// For reads of `read_bytes` at most, in pieces and at a depth as the engine chooses them.
DriveRange drive_range(const std::optional<DriveProfile>& profile, std::uint64_t read_bytes);

// Seconds of one decoded token that finds all its experts in memory.
struct TokenTimes {
  double trunk = 0;  // with what a layer costs beside its weights
  double experts = 0;
  double head = 0;  // of the trunk's, behind the last layer: nothing is read meanwhile
};
TokenTimes token_times(const ModelSpec& spec, const ComputeSpeed& speed);

// A layer of which something is missing.
struct LayerCost {
  double trunk_seconds = 0, expert_seconds = 0;  // computing, of all it uses
  double one_expert_seconds = 0;                 // the last that lands is computed behind its read
  double read_seconds = 0, latency_seconds = 0;
};
// `ahead`: share of the missing that is guessed, so that it loads while other layers compute; what
// is not guessed is read once the router has chosen, while the hits compute.
double layer_seconds(const LayerCost& cost, double ahead) noexcept;
// That share, of a predictor of this name: as measured (prefetch/predictors).
double ahead_share(std::string_view predictor) noexcept;

enum class Binds : std::uint8_t { drive, memory, compute };
const char* binds_name(Binds binds) noexcept;

// What earlier runs of a model showed (known_pace.h).
struct KnownPace {
  double compute_seconds = 0;         // of a token, all that is not waiting
  std::uint32_t runs = 0;             // that it was learned from
  double drive_bytes_per_second = 0;  // what the drive gave in the middle of them; 0: not known
  double asked_bytes_per_second = 0;  // what it gave when asked as they started; 0: not known
};

struct Prediction {
  HitRange hits;
  std::string hits_from;                 // where these are known from, in words
  KnownPace pace;                        // that computing and drive were judged by
  std::string size_reason;               // why the cache has its size; empty: it was asked for
  double drive_bytes_per_second = 0;     // expected of the drive, in the middle of the range
  double drive_bytes_per_token = 0;      // in the middle of the range
  double memory_bytes_per_token = 0;     // weights that pass through the kernels
  double low = 0, middle = 0, high = 0;  // decoded tokens per second
  Binds binds = Binds::drive;            // what takes most of the time in the middle
};

struct PredictInput {
  const ModelSpec& spec;
  const Plan& plan;
  const ComputeSpeed& speed;
  const DriveRange& drive;
  std::string_view prefetch = "off";
  std::optional<HitRange> known_hits = std::nullopt;  // else the curve of recorded models
  std::string_view known_from = "";
};
// Pure. Decoding, cache warm, few positions in the KV cache.
Prediction predict(const PredictInput& input);

// Bytes of weights that one decoded token takes through the kernels.
double token_weight_bytes(const ModelSpec& spec);

// The type of most bytes of the experts (of the trunk if there are none), and of the trunk.
DType expert_type(const ModelSpec& spec) noexcept;
DType trunk_type(const ModelSpec& spec) noexcept;

}  // namespace millrace
