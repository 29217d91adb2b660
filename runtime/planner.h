// The planner: what will be allocated, summed before it is, and held against what the machine has
// left. Pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "model/model_spec.h"
#include "model/trunk_store.h"
#include "prefetch/predictor.h"
#include "prefetch/slot_layout.h"
#include "prefetch/slot_plan.h"
#include "runtime/base/result.h"
#include "runtime/config.h"
#include "runtime/machine.h"

namespace millrace {

struct Plan {
  TrunkPlan trunk;
  SlotPlan slots;
  std::uint64_t kv_bytes = 0;         // of all sessions, recurrent states included
  std::uint64_t workspace_bytes = 0;  // activations, logits, scratch
  std::uint64_t measuring_bytes = 0;  // what the drive's floor is measured into during the run
  std::uint64_t program_bytes = 0;    // code, libraries, tokenizer, reading buffers: estimated
  std::uint32_t context = 0;
  std::uint32_t threads = 0;
  std::uint32_t batch_tokens = 0;
  std::uint32_t sequences = 1;    // sessions at a time, each of `context` positions
  std::uint32_t logits_rows = 0;  // tokens that share a pass over the head
  std::uint64_t available_bytes = 0;

  std::uint64_t total_bytes() const noexcept {
    return trunk.total_bytes() + slots.mapped_bytes + kv_bytes + workspace_bytes + measuring_bytes +
           program_bytes;
  }
  // One line per part, for -v and for the report.
  std::string describe() const;
};

struct PlanInput {
  const ModelSpec& spec;
  const SlotLayout& layout;
  std::span<const std::uint32_t> block_bytes;  // per file
  const EngineConfig& config;
  const Machine& machine;
};

// Trunk first, then KV cache and workspace, the rest to the expert cache (preset auto), or the
// preset's and the flags' sizes. `memory` error past 95 % of what is available, or when a size is
// too small to work: both name numbers and the flag. `usage` error for a context that the model or
// the limits do not allow.
Result<Plan> make_plan(const PlanInput& input);

// What the predictors are made for.
PredictorShape predictor_shape(const ModelSpec& spec);

}  // namespace millrace
