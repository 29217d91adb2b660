#include "runtime/estimate/choose_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "prefetch/expert_cache.h"
#include "runtime/base/counted.h"
#include "runtime/estimate/known_routing.h"
#include "runtime/presets.h"

namespace millrace {

namespace {

std::uint64_t tokens_of(const RoutingRecord& record) {
  std::uint64_t tokens = 0;
  for (const RoutingRow& row : record.rows) tokens += row.layer == record.rows.front().layer;
  return tokens;
}

// Sizes are tried in steps of a GiB, of small caches in eighths.
std::uint64_t step_of(std::uint64_t bytes) { return std::clamp(bytes / 8, 64 * MiB, 1 * GiB); }

bool size_is_free(const PlanInput& input, const Plan& plan) {
  const auto preset = find_preset(input.config.preset);
  return preset && preset->automatic && input.config.cache.kind == SizeSpec::Kind::unset &&
         plan.slots.slots > 0;
}

}  // namespace

Prediction predict_plan(const PlanInput& input, const Plan& plan, const RunConditions& conditions) {
  PredictInput wanted{.spec = input.spec,
                      .plan = plan,
                      .speed = conditions.speed,
                      .drive = conditions.drive,
                      .prefetch = input.config.prefetch};
  std::string from;
  if (conditions.routing && plan.slots.slots > 0) {
    const std::uint32_t top_k = input.spec.hparams.experts_used;
    const bool guesses = ahead_share(input.config.prefetch) > 0;
    wanted.known_hits = known_hits(*conditions.routing, input.layout,
                                   guesses ? without_spares(plan.slots, top_k) : plan.slots, top_k,
                                   input.config.policy);
    from = "this model's routing of " + counted(tokens_of(*conditions.routing), "token");
    wanted.known_from = from;
  }
  return predict(wanted);
}

Result<PlannedRun> choose_cache(const PlanInput& input, Plan plan,
                                const RunConditions& conditions) {
  PlannedRun best{std::move(plan), {}};
  best.prediction = predict_plan(input, best.plan, conditions);
  if (!size_is_free(input, best.plan)) return best;
  best.prediction.size_reason =
      best.plan.slots.complete ? "every expert has its place" : "as large as fits";
  // What nobody knows is no reason to read more, and neither is what could overlap.
  if (best.plan.slots.complete || !conditions.routing) return best;
  const TokenTimes times = token_times(input.spec, conditions.speed);
  const auto seconds = [&](const Prediction& prediction) {
    return times.trunk + times.experts + prediction.drive_bytes_per_token / conditions.drive.middle;
  };
  EngineConfig config = input.config;
  while (true) {
    const std::uint64_t step = step_of(best.plan.slots.bytes);
    if (best.plan.slots.bytes < best.plan.slots.smallest_bytes + step) return best;
    config.cache = {SizeSpec::Kind::bytes, best.plan.slots.bytes - step, 0};
    const PlanInput smaller{input.spec, input.layout, input.block_bytes, config, input.machine};
    auto tried = make_plan(smaller);
    if (!tried) return best;
    Prediction prediction = predict_plan(smaller, *tried, conditions);
    const double gained = seconds(prediction) / seconds(best.prediction) - 1;
    const double gib = static_cast<double>(step) / static_cast<double>(GiB);
    if (gained > gain_per_gib_min * gib) return best;
    best = {*std::move(tried), std::move(prediction)};
    best.prediction.size_reason =
        fmt::format("another GiB would gain less than {:.0f} %", 100 * gain_per_gib_min);
  }
}

}  // namespace millrace
