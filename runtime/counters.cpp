#include "runtime/counters.h"

namespace millrace {

ActivityTimes operator-(const ActivityTimes& later, const ActivityTimes& earlier) noexcept {
  return {.compute_ns = later.compute_ns - earlier.compute_ns,
          .stalled_ns = later.stalled_ns - earlier.stalled_ns,
          .other_ns = later.other_ns - earlier.other_ns,
          .overlapped_ns = later.overlapped_ns - earlier.overlapped_ns};
}

ReadStats operator-(const ReadStats& later, const ReadStats& earlier) noexcept {
  ReadStats phase;
  phase.bytes = later.bytes - earlier.bytes;
  for (std::size_t i = 0; i < read_priority_count; ++i)
    phase.bytes_by_priority[i] = later.bytes_by_priority[i] - earlier.bytes_by_priority[i];
  phase.reads = later.reads - earlier.reads;
  phase.retries = later.retries - earlier.retries;
  phase.busy_ns = later.busy_ns - earlier.busy_ns;
  phase.owner_cpu_ns = later.owner_cpu_ns - earlier.owner_cpu_ns;
  return phase;
}

EngineCounters operator-(const EngineCounters& later, const EngineCounters& earlier) {
  return {.times = later.times - earlier.times,
          .experts = later.experts - earlier.experts,
          .reads = later.reads - earlier.reads,
          .small_bytes = later.small_bytes - earlier.small_bytes};
}

void leave_out(EngineCounters& phase, const EngineCounters& beside) noexcept {
  phase.times = phase.times - beside.times;
  phase.reads = phase.reads - beside.reads;
}

}  // namespace millrace
