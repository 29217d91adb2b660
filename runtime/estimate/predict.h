// Bytes and seconds per token to expect of a plan, as a range with its reasons. `estimate` prints
// it; the report of a run sets it beside what came true.
#pragma once

#include <cstdint>
#include <optional>

#include "io/drive_profile.h"
#include "model/model_spec.h"
#include "runtime/estimate/compute_speed.h"
#include "runtime/estimate/hit_curve.h"
#include "runtime/planner.h"

namespace millrace {

// What the drive gives, in bytes per second.
struct DriveRange {
  double low = 0, middle = 0, high = 0;
  bool measured = false;  // else: what drives give that people have
};
DriveRange drive_range(const std::optional<DriveProfile>& profile);

enum class Binds : std::uint8_t { drive, memory, compute };
const char* binds_name(Binds binds) noexcept;

struct Prediction {
  HitRange hits;
  double drive_bytes_per_token = 0;      // in the middle of the range
  double memory_bytes_per_token = 0;     // weights that pass through the kernels
  double low = 0, middle = 0, high = 0;  // decoded tokens per second
  Binds binds = Binds::drive;            // what takes most of the time in the middle
};

// Pure. Decoding, cache warm, few positions in the KV cache.
Prediction predict(const ModelSpec& spec, const Plan& plan, const ComputeSpeed& speed,
                   const DriveRange& drive);

// Bytes of weights that one decoded token takes through the kernels.
double token_weight_bytes(const ModelSpec& spec);

// The type of most bytes of the experts (of the trunk if there are none), and of the trunk.
DType expert_type(const ModelSpec& spec) noexcept;
DType trunk_type(const ModelSpec& spec) noexcept;

}  // namespace millrace
