// The floor of a running generation: now and then, between two tokens, experts are read as the
// loader reads them, with nothing else going on, and timed. So the report can hold the run against
// what the drive gave in the same minutes, at the same piece size and depth, through the same
// reader and into memory of the same kind.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "io/pinned_memory.h"
#include "io/read_scheduler.h"
#include "prefetch/slot_layout.h"

namespace millrace {

struct FloorFigure {
  std::uint32_t samples = 0;
  std::uint64_t bytes = 0;
  std::uint64_t ns = 0;
  double bytes_per_second() const noexcept {
    return ns == 0 ? 0 : static_cast<double>(bytes) / (static_cast<double>(ns) * 1e-9);
  }
};

// Owned by the engine; used by the thread that runs it. Scheduler, layout and memory outlive it.
class RunFloor {
 public:
  // Shares of the run that measuring may take: while it goes on, and at its end if there is no
  // sample by then.
  static constexpr double share_max = 0.01, share_at_end = 0.02;

  // Reads overwrite each other in `buffer`, which holds the layout's largest read.
  RunFloor(ReadScheduler& scheduler, const SlotLayout& layout, PinnedBlock buffer);

  // Between tokens, or behind the last: whether a sample is due. `run_ns` is how long the run took
  // so far.
  bool due(std::uint64_t run_ns, bool last) const noexcept;
  // Takes one. Failed reads give none.
  void measure();
  const FloorFigure& figure() const noexcept { return figure_; }

 private:
  bool next_range(RangeRead& range) noexcept;
  static void range_done(RangeRead& range, int status);

  ReadScheduler& scheduler_;
  const SlotLayout& layout_;
  PinnedBlock buffer_;
  FloorFigure figure_;
  std::uint64_t spent_ns_ = 0;
  std::uint64_t random_ = 0;
  std::vector<RangeRead> ranges_;
  // Of the sample that is being taken.
  std::uint64_t bytes_left_ = 0, bytes_asked_ = 0;
  int failure_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::uint32_t open_ = 0;  // under mutex_
};

}  // namespace millrace
