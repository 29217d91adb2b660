#include "runtime/replay_pricing.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "kernels/dispatch.h"
#include "model/format/open.h"
#include "runtime/base/counted.h"
#include "runtime/base/limits.h"
#include "runtime/estimate/known_pace.h"
#include "runtime/estimate/known_routing.h"
#include "runtime/estimate/predict.h"
#include "runtime/machine.h"
#include "runtime/read_joins.h"
#include "runtime/run_drives.h"

namespace millrace {

Result<ReplayPricing> measure_pricing(const std::string& model_path,
                                      const std::string& profile_folder) {
  MILLRACE_ASSIGN(const Checkpoint checkpoint, open_checkpoint(model_path));
  MILLRACE_ASSIGN(const ModelSpec spec, read_model_spec(checkpoint));
  MILLRACE_ASSIGN(const KernelTable* kernels, choose_kernels(""));
  const unsigned threads = std::min(read_machine().cores, limits::threads_max);
  MILLRACE_ASSIGN(const ComputeSpeed measured,
                  measure_compute(*kernels, expert_type(spec), trunk_type(spec), threads));
  MILLRACE_ASSIGN(const std::string key, routing_key(spec));
  RunDrive own;
  MILLRACE_TRY(look_up(own, spec.files.front(), profile_folder));
  const auto pace =
      load_pace({profile_folder, key, kernels->name, threads, pace_drive({&own, 1}, true)});
  const ComputeSpeed speed = paced(measured, token_times(spec, measured), pace);
  const std::vector<std::uint32_t> blocks(spec.files.size(), 4096);
  const RangeOfRead rates = [&](std::uint64_t bytes) { return drive_range(own.profile, bytes); };
  const std::uint64_t read_bytes = joined_layout(spec.experts, blocks, rates).largest_read_bytes();
  const double now = ask_now(own, spec.files.front(), read_bytes);
  const DriveRange range = paced(rates(read_bytes), pace, now);
  const TokenTimes times = token_times(spec, speed);
  ReplayPricing made;
  made.drive_bytes_per_second = range.middle;
  made.latency_seconds = range.latency_seconds;
  made.compute_seconds = times.trunk + times.experts;
  made.expert_share = times.experts / made.compute_seconds;
  made.head_share = times.head / made.compute_seconds;
  made.drive_from =
      fmt::format("{}{} at {:.2f} GB/s", own.drive.name,
                  range.measured ? "" : " (never measured, assumed)", range.middle / 1e9);
  made.compute_from = fmt::format("{:.1f} ms of computing with {}", 1e3 * made.compute_seconds,
                                  counted(threads, "thread"));
  return made;
}

}  // namespace millrace
