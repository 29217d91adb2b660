// Splits wall time into compute, stalled and other (CONTRACT: compute = at least one kernel runs,
// stalled = none runs and a demanded read is outstanding). Owned by the engine; compute threads and
// the loader report begin and end. Thread-safe; each call takes one short lock. No allocation.
#pragma once

#include <cstdint>
#include <mutex>

#include "runtime/base/clock.h"

namespace millrace {

struct ActivityTimes {
  std::uint64_t compute_ns = 0;
  std::uint64_t stalled_ns = 0;
  std::uint64_t other_ns = 0;
  std::uint64_t overlapped_ns =
      0;  // part of compute_ns during which a demanded read was outstanding too
};

class ActivityClock {
 public:
  explicit ActivityClock(Clock& clock) : clock_(clock), last_ns_(clock.now_ns()) {}

  void compute_begin() noexcept { change(+1, 0); }
  void compute_end() noexcept { change(-1, 0); }
  void demand_begin() noexcept {
    change(0, +1);
  }  // one demanded read (of any length) is now outstanding
  void demand_end() noexcept { change(0, -1); }

  // Totals up to now since construction.
  ActivityTimes times() noexcept {
    const std::lock_guard lock(mutex_);
    advance();
    return times_;
  }

 private:
  void change(int compute, int demand) noexcept {
    const std::lock_guard lock(mutex_);
    advance();
    computing_ += compute;
    demanding_ += demand;
  }
  void advance() noexcept {
    const std::uint64_t now = clock_.now_ns();
    const std::uint64_t passed = now - last_ns_;
    last_ns_ = now;
    if (computing_ > 0) {
      times_.compute_ns += passed;
      if (demanding_ > 0) times_.overlapped_ns += passed;
    } else if (demanding_ > 0) {
      times_.stalled_ns += passed;
    } else {
      times_.other_ns += passed;
    }
  }

  Clock& clock_;
  std::mutex mutex_;
  std::uint64_t last_ns_;
  int computing_ = 0;
  int demanding_ = 0;
  ActivityTimes times_;
};

// Marks a stretch in which the calling thread runs kernels.
class ComputeScope {
 public:
  explicit ComputeScope(ActivityClock& activity) : activity_(activity) {
    activity_.compute_begin();
  }
  ~ComputeScope() { activity_.compute_end(); }
  ComputeScope(const ComputeScope&) = delete;
  ComputeScope& operator=(const ComputeScope&) = delete;

 private:
  ActivityClock& activity_;
};

}  // namespace millrace
