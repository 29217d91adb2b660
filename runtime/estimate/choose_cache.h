// The size of the expert cache under the preset `auto`: as large as helps, not as large as fits.
#pragma once

#include <cstdint>
#include <optional>

#include "prefetch/routing_record.h"
#include "runtime/estimate/predict.h"
#include "runtime/planner.h"

namespace millrace {

// Another GiB of cache has to make tokens faster by at least this share.
inline constexpr double gain_per_gib_min = 0.01;

struct PlannedRun {
  Plan plan;
  Prediction prediction;
};

struct RunConditions {
  const ComputeSpeed& speed;
  const DriveRange& drive;
  const std::optional<RoutingRecord>& routing;  // of this model, if it is known
};

// The prediction of a plan: hits by the model's own routing where it is known, else by the curve of
// recorded models. Pure.
Prediction predict_plan(const PlanInput& input, const Plan& plan, const RunConditions& conditions);

// Shrinks the cache of `plan` (make_plan's, the largest that fits) while what is taken away would
// have gained less than gain_per_gib_min per GiB, in computing and reading one after the other.
// Only where the model's routing is known; a size that was asked for, or a preset's, stays. Errors
// as make_plan().
Result<PlannedRun> choose_cache(const PlanInput& input, Plan plan, const RunConditions& conditions);

}  // namespace millrace
