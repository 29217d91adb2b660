// PoolGuard: shrinks the pool of expert slots, segment by segment, while memory is short, and grows
// it again when it no longer is. Tokens stay the same: experts that lost their slot are read again.
//
// Owned by the engine. tick() is called between the jobs and layers of a walk, by any of its
// threads; whoever comes while another looks goes on at once. It has no thread of its own. The
// figures are for when no walk is under way.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "io/pinned_memory.h"
#include "io/read_scheduler.h"
#include "prefetch/loader.h"
#include "runtime/base/clock.h"
#include "runtime/guard/guard_rule.h"

namespace millrace {

struct GuardFigures {
  std::uint64_t bytes_now = 0, bytes_most = 0, bytes_least = 0;  // of slots
  std::uint32_t shrinks = 0, grows = 0;                          // segments
  std::uint32_t by_cause[4] = {};                                // shrinks, by PressureCause
  std::uint32_t refused = 0;    // times that the system did not give memory again
  bool stuck = false;           // a segment could not be given back: no more is tried
  std::string waiting_unknown;  // why PSI is not known; empty: it is
};

class PoolGuard {
 public:
  struct Parts {
    Loader& loader;
    PinnedMemory& memory;
    ReadScheduler& scheduler;
    PressureSource* source = nullptr;  // null: the system's
    Clock* clock = nullptr;            // null: the system's
  };
  // What was available before the plan's memory was taken.
  PoolGuard(const Parts& parts, std::uint64_t available_bytes, std::uint64_t plan_bytes);

  // Looks, if it is time to, and does what is due. Allocates nothing while nothing changes.
  void tick() noexcept;

  GuardFigures figures() const;

 private:
  enum class State : std::uint8_t { here, leaving, gone };

  void look(std::uint64_t now_ns);
  void shrink(std::uint64_t bytes, PressureCause cause);
  void grow(std::uint64_t bytes, std::uint64_t now_ns);
  void finish_leaving();
  bool give_back(std::size_t index);
  std::size_t to_leave() const noexcept;
  std::size_t to_return() const noexcept;
  std::uint64_t segment_bytes(std::size_t index) const noexcept;
  std::uint64_t slots_bytes(std::size_t index) const noexcept;
  void log(const char* what, std::size_t index, const std::string& why);

  Parts parts_;
  std::unique_ptr<PressureSource> own_source_;
  PressureSource& source_;
  Clock& clock_;
  bool idle_ = false;  // no group can do without a segment: nothing will ever change
  GuardRule rule_;
  std::atomic<std::uint64_t> due_ns_ = 0;
  std::mutex mutex_;
  // Under mutex_.
  std::vector<State> states_;                  // of the loader's segments
  std::vector<std::uint32_t> here_;            // slots of each group in segments that are here
  std::uint64_t leaving_bytes_ = 0;            // segments that wait for their claims
  PressureCause cause_ = PressureCause::none;  // of the latest shrink
  bool warned_ = false;
  GuardFigures figures_;
};

}  // namespace millrace
