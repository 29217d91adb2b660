// Threads that start a pass together, each over its own data, and are timed as one.
#pragma once

#include <cstdint>
#include <memory>

#include "runtime/base/function_ref.h"
#include "runtime/base/result.h"
#include "runtime/graph/arena.h"

namespace millrace {

// One caller. Threads keep their numbers from run to run, so what one left in its cache is there
// the next time, as long as the system leaves it on its core.
class StudyTeam {
 public:
  // `memory` error if the system does not start so many threads.
  static Result<StudyTeam> create(unsigned threads);
  unsigned threads() const noexcept { return arena_->workers(); }
  // Each thread calls work(number) `passes` times, once all are there. CPU seconds of the thread
  // that took most: what other programs take is not counted, though the memory bus is theirs too.
  double run(unsigned passes, FunctionRef<void(unsigned)> work);

 private:
  explicit StudyTeam(std::unique_ptr<ComputeArena> arena) : arena_(std::move(arena)) {}
  std::unique_ptr<ComputeArena> arena_;
};

}  // namespace millrace
