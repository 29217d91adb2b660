// The oneTBB objects behind ComputeArena; included in runtime/graph/*.cpp only.
#pragma once

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include "runtime/graph/arena.h"
#include "runtime/graph/crew.h"

namespace millrace {

struct ComputeArena::Impl {
  // The process-wide limit first: without it an arena wider than the machine would get no more
  // workers than cores.
  tbb::global_control limit;
  tbb::task_arena arena;
  Crew crew;
  explicit Impl(unsigned threads)
      : limit(tbb::global_control::max_allowed_parallelism, threads),
        arena(static_cast<int>(threads), 1),
        crew(threads) {}
};

}  // namespace millrace
