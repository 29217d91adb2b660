// What the drive could have given while a model decoded, and how near to that it came. The report
// of a run and of a sweep show the same figures.
#pragma once

#include "runtime/engine.h"
#include "runtime/generate.h"

namespace millrace {

struct FloorFigures {
  double rate = 0;               // bytes per second; 0: not known
  const char* source = nullptr;  // "run", "reads" or "profile"
  FloorFigure measured;          // within the run
  double share = -1;             // floor time ÷ achieved time; -1: not known
};

// Pure. `profiled`: bytes per second by the drives' profiles, for runs that were too short to
// measure it; 0: not known.
FloorFigures floor_figures(const Engine& engine, const PhaseReport& decode, double profiled);

}  // namespace millrace
