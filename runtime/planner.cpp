#include "runtime/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "prefetch/predictor.h"
#include "runtime/base/counted.h"
#include "runtime/base/log.h"
#include "runtime/pipeline/batch_walk.h"
#include "runtime/presets.h"

namespace millrace {

namespace {

constexpr std::uint32_t logits_rows_least = 16;
constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max() / 4;

// Measured on an idle engine: pages of program and libraries about 9 MiB; a token of the vocabulary
// with its text, merge and hash entries about 300 bytes.
std::uint64_t program_bytes(const ModelSpec& spec) {
  return 9 * MiB + std::uint64_t{300} * spec.hparams.vocabulary;
}

Result<std::uint32_t> choose_context(const PlanInput& input) {
  const std::uint32_t trained = input.spec.hparams.context;
  const std::uint32_t wanted = input.config.context;
  if (wanted == 0) return std::min(trained, context_default);
  MILLRACE_TRY(check_range("-c", wanted, 0, limits::context_max));
  if (wanted > trained)
    log_warning(fmt::format("-c {} exceeds the {} positions that the model was trained on", wanted,
                            trained));
  return wanted;
}

// Only models that may stream a good deal are held against the drive; whatever the cache, so that
// advice about its size stays true.
std::uint64_t measuring_bytes(const PlanInput& input) {
  constexpr std::uint64_t smallest_pool = 256 * MiB;
  if (input.spec.experts.pool_bytes() < smallest_pool) return 0;
  return PinnedMemory::mapped_bytes(1, input.layout.largest_read_bytes());
}

// What remains for trunk and cache under the preset "auto": a tenth is left to the system.
std::uint64_t automatic_room(const Plan& plan) {
  const std::uint64_t target = plan.available_bytes / 10 * 9;
  const std::uint64_t fixed =
      plan.kv_bytes + plan.workspace_bytes + plan.measuring_bytes + plan.program_bytes;
  return target - std::min(target, fixed);
}

Result<SlotPlan> slots_for(const PlanInput& input, std::uint64_t budget) {
  return plan_slots(input.layout, budget, input.spec.hparams.experts_used,
                    input.config.guard.segment_bytes);
}

// The smallest cache that works, whatever the budget.
std::uint64_t smallest_cache(const PlanInput& input) {
  if (input.spec.hparams.experts == 0) return 0;
  const auto largest = slots_for(input, unlimited);
  return largest ? largest->smallest_bytes : 0;
}

// A size that asks for everything, padding included.
bool wants_all(const SizeSpec& wanted) {
  return wanted.kind == SizeSpec::Kind::all ||
         (wanted.kind == SizeSpec::Kind::percent && wanted.percent >= 100);
}

Status plan_trunk_part(const PlanInput& input, const Preset& preset, Plan& plan) {
  MILLRACE_ASSIGN(const TrunkPlan whole, plan_trunk(input.spec, input.block_bytes, unlimited));
  std::uint64_t budget = preset.trunk_bytes;
  if (preset.automatic) {
    const std::uint64_t room = automatic_room(plan);
    budget = std::max(room - std::min(room, smallest_cache(input)), whole.smallest_bytes);
  }
  const SizeSpec& wanted = input.config.trunk;
  budget = wants_all(wanted) ? unlimited : wanted.resolve(input.spec.trunk_bytes(), budget);
  MILLRACE_ASSIGN(plan.trunk, plan_trunk(input.spec, input.block_bytes, budget));
  return {};
}

Status plan_cache_part(const PlanInput& input, const Preset& preset, Plan& plan) {
  if (input.spec.hparams.experts == 0) return {};
  std::uint64_t budget = preset.cache_bytes;
  if (preset.automatic) {
    const std::uint64_t room = automatic_room(plan);
    budget = std::max(room - std::min(room, plan.trunk.total_bytes()), smallest_cache(input));
  }
  const SizeSpec& wanted = input.config.cache;
  budget = wants_all(wanted) ? unlimited : wanted.resolve(input.spec.experts.pool_bytes(), budget);
  auto slots = slots_for(input, budget);
  if (!slots)
    return Error{slots.error().code, input.spec.files.front() + ": " + slots.error().what};
  plan.slots = *std::move(slots);
  return {};
}

// The largest --cache with which the plan fits, if there is one below today's: slots are mapped in
// rounded segments, so the sum is tried out.
std::optional<std::uint64_t> fitting_cache(const PlanInput& input, const Plan& plan,
                                           std::uint64_t allowed) {
  if (plan.slots.slots == 0) return std::nullopt;
  const std::uint64_t others = plan.total_bytes() - plan.slots.mapped_bytes;
  const std::uint64_t least = plan.slots.smallest_bytes;
  for (std::uint64_t cache = plan.slots.bytes;;) {
    const auto slots = slots_for(input, cache);
    if (!slots) return std::nullopt;
    if (others + slots->mapped_bytes <= allowed) return cache;
    if (cache == least) return std::nullopt;
    const std::uint64_t over = others + slots->mapped_bytes - allowed;
    cache = std::max(least, slots->bytes - std::min(slots->bytes, over));
  }
}

// What to change so that the plan fits; each number works as it stands.
std::string advice(const PlanInput& input, const Plan& plan, std::uint64_t allowed) {
  if (const auto cache = fitting_cache(input, plan, allowed))
    return fmt::format("use --cache {} or less", *cache);
  std::string smallest_flags;
  std::uint64_t others = plan.total_bytes() - plan.trunk.total_bytes();
  if (plan.slots.slots > 0) {
    const auto slots = slots_for(input, plan.slots.smallest_bytes);
    if (slots) others = others - plan.slots.mapped_bytes + slots->mapped_bytes;
    smallest_flags = fmt::format("--cache {} and ", plan.slots.smallest_bytes);
  }
  const std::uint64_t room = allowed - std::min(allowed, others);
  if (room >= plan.trunk.smallest_bytes)
    return fmt::format("use {}--trunk {} or less", smallest_flags, room);
  return fmt::format(
      "even {}--trunk {}, the smallest that work, are too much: lower -c or -ub, or "
      "free memory",
      smallest_flags, plan.trunk.smallest_bytes);
}

Status check_total(const PlanInput& input, const Plan& plan) {
  const std::uint64_t allowed = plan.available_bytes / 100 * 95;
  if (plan.total_bytes() <= allowed) return {};
  return Error{
      ErrorCode::memory,
      fmt::format("{}: the plan needs {} ({}), but 95 % of the {} that {} leaves are {}: {}",
                  input.spec.files.front(), format_bytes(plan.total_bytes()), plan.describe(),
                  format_bytes(plan.available_bytes), input.machine.memory_source,
                  format_bytes(allowed), advice(input, plan, allowed))};
}

// The flags are checked where they are read; other callers get the same answer.
Status check_config(const EngineConfig& config) {
  MILLRACE_TRY(check_range("-t", config.threads, 0, limits::threads_max));
  MILLRACE_TRY(check_range("-ub", config.batch_tokens, 1, limits::batch_tokens_max));
  return check_range("--parallel", config.sequences, 1, sequences_max);
}

}  // namespace

std::string Plan::describe() const {
  std::string text = fmt::format("trunk {}", format_bytes(trunk.total_bytes()));
  if (trunk.ring_bytes > 0)
    text += fmt::format(" ({} pinned, the others through a ring of {})",
                        counted(trunk.pinned_layers, "layer"), format_bytes(trunk.ring_bytes));
  if (slots.slots > 0)
    text += fmt::format(", expert cache {} ({})", format_bytes(slots.mapped_bytes),
                        counted(slots.slots, "slot"));
  const std::string times = sequences > 1 ? fmt::format("{} x ", sequences) : std::string();
  text += fmt::format(", KV cache {} ({}{}), workspace {} (-ub {}), program {}",
                      format_bytes(kv_bytes), times, counted(context, "position"),
                      format_bytes(workspace_bytes), batch_tokens, format_bytes(program_bytes));
  return text;
}

PredictorShape predictor_shape(const ModelSpec& spec) {
  return {.layers = spec.hparams.layers,
          .experts = spec.hparams.experts,
          .top_k = spec.hparams.experts_used};
}

Result<Plan> make_plan(const PlanInput& input) {
  Plan plan;
  MILLRACE_ASSIGN(const Preset preset, find_preset(input.config.preset));
  MILLRACE_TRY(check_config(input.config));
  MILLRACE_ASSIGN(plan.context, choose_context(input));
  plan.threads = input.config.threads != 0 ? input.config.threads
                                           : std::min(input.machine.cores, limits::threads_max);
  plan.sequences = input.config.sequences;
  // A step of all sequences goes through in one part, and past the head in one pass.
  const std::uint64_t positions = std::uint64_t{plan.context} * plan.sequences;
  plan.batch_tokens = std::max(
      static_cast<std::uint32_t>(std::min<std::uint64_t>(input.config.batch_tokens, positions)),
      plan.sequences);
  plan.logits_rows = std::max(logits_rows_least, plan.sequences);
  plan.available_bytes = input.machine.memory_available;
  plan.kv_bytes = plan.sequences * SequenceState::bytes(input.spec.hparams, plan.context,
                                                        input.config.kv, plan.batch_tokens);
  plan.workspace_bytes =
      BatchWalk::bytes(input.spec, plan.batch_tokens, plan.logits_rows, plan.threads) +
      predictor_bytes(input.config.prefetch, predictor_shape(input.spec));
  plan.measuring_bytes = measuring_bytes(input);
  plan.program_bytes = program_bytes(input.spec);
  MILLRACE_TRY(plan_trunk_part(input, preset, plan));
  MILLRACE_TRY(plan_cache_part(input, preset, plan));
  MILLRACE_TRY(check_total(input, plan));
  return plan;
}

}  // namespace millrace
