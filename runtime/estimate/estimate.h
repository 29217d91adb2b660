// What a model will do on a machine, before it is run or even downloaded: from its header or its
// known shape, the drive's profile and a short measurement of the kernels.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/estimate/choose_cache.h"
#include "runtime/planner.h"

namespace millrace {

struct EstimateOptions {
  std::string model;  // a GGUF file, or its beginning, or the name of a shape (runtime/fixture)
  std::string type = "q4_k_m";  // of a shape's weights, as `fixture --type` takes it
  std::string profile_folder;
  std::string routing_path;  // a trace of the model; empty: what is kept of earlier runs
  std::vector<std::uint64_t> ram_bytes;  // budgets; empty: a ladder up to all of the model
  EngineConfig config;                   // context, threads, batch; sizes come from the budgets
  std::string root;  // before /proc/pressure; empty: the real one (tests give a folder)
  const std::atomic<bool>* cancel = nullptr;  // looked at between measuring and budgets
};

struct Budget {
  std::uint64_t ram_bytes = 0;
  std::string refused;  // why there is no plan
  Plan plan;
  Prediction prediction;
};

struct Estimate {
  std::string name, architecture;
  std::uint64_t file_bytes = 0, pool_bytes = 0, trunk_bytes = 0, expert_bytes = 0;
  std::uint32_t layers = 0, experts = 0, experts_used = 0;
  bool complete = true;               // the file is all there, or none was named
  bool on_disk = true;                // a file was named, and is all there
  std::uint64_t disk_free_bytes = 0;  // where it lies
  std::uint64_t ram_available = 0;    // of this machine
  std::string drive_name;
  DriveRange drive;
  std::string drive_from;  // where that is known from, in words
  double drive_now = 0;    // bytes per second that it gave a moment ago; 0: not asked
  std::string busy;        // what other programs keep busy meanwhile; empty: nothing
  ComputeSpeed speed;
  std::vector<Budget> budgets;
  std::size_t here = 0;  // index of the budget that is this machine's; budgets.size(): none asked
  std::string preset;    // to take on this machine, with its reason
  std::vector<std::string> assumptions;
};

// Errors of the model's header as of a run, `usage` (a context beyond any model's), `memory` if
// nothing can be measured, `cancelled`.
Result<Estimate> estimate_model(const EstimateOptions& options);

std::string estimate_table(const Estimate& estimate);
Json estimate_json(const Estimate& estimate);

}  // namespace millrace
