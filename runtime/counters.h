// Differences of counter snapshots: what one phase did. Pure.
#pragma once

#include "runtime/engine.h"

namespace millrace {

ActivityTimes operator-(const ActivityTimes& later, const ActivityTimes& earlier) noexcept;
ReadStats operator-(const ReadStats& later, const ReadStats& earlier) noexcept;
// What was done beside the run, in times and reads, is taken out of a phase.
void leave_out(EngineCounters& phase, const EngineCounters& beside) noexcept;
EngineCounters operator-(const EngineCounters& later, const EngineCounters& earlier);

}  // namespace millrace
