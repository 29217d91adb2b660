// The packed pool of a model: made, resumed, checked, and put in the place of the experts in the
// model's own files. pack_file.h has the format.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "model/format/pack_file.h"
#include "model/model_spec.h"
#include "prefetch/routing_record.h"
#include "runtime/base/result.h"
#include "runtime/progress.h"

namespace millrace {

// A number that two models with equal shapes but other weights do not share: of the extents' shapes
// and of the routers' bytes. Reads the routers.
Result<std::uint64_t> model_identity(const ModelSpec& spec);

// By layer, then expert.
std::vector<ExpertKey> layer_order(const ExpertExtents& extents);
// By layer, in a layer those first that a trace asked for most. `usage` error if the trace is of a
// model with other layers or experts.
Result<std::vector<ExpertKey>> traced_order(const ExpertExtents& extents,
                                            const RoutingRecord& record);

struct PackResult {
  std::uint64_t bytes = 0;    // of the file
  std::uint64_t experts = 0;  // in all
  std::uint64_t resumed = 0;  // of them from an earlier run
};

// Packs into PATH.part and renames it. What an earlier run for the same model and order has left
// there is continued. Errors: `io` (no room, checked first; a read or write failed: what is packed
// stays for the next run), `cancelled`.
Result<PackResult> pack_model(const ModelSpec& spec, const std::vector<ExpertKey>& order,
                              const std::string& path, ProgressLine& progress,
                              const std::atomic<bool>& cancel);

struct PackDamage {
  ExpertKey key;
  unsigned slice = 0;  // 0 gate, 1 up, 2 down
};
struct PackCheck {
  std::uint64_t bytes = 0, experts = 0;  // read
  double seconds = 0;
  std::vector<PackDamage> damaged;  // by layer and expert
};
// Reads every expert past the page cache and compares digests. `verify` error if the table itself
// is damaged.
Result<PackCheck> check_pack(const std::string& path, ProgressLine& progress,
                             const std::atomic<bool>& cancel);

// Lets the experts of `spec` be read from the pack, which becomes its last file; returns the index
// with the digests. `usage` error if it is of another model.
Result<PackIndex> use_pack(ModelSpec& spec, const std::string& path);

}  // namespace millrace
