// Differences of counter snapshots: what one phase did. Pure.
#pragma once

#include "runtime/engine.h"

namespace millrace {

ActivityTimes operator-(const ActivityTimes& later, const ActivityTimes& earlier) noexcept;
ReadStats operator-(const ReadStats& later, const ReadStats& earlier) noexcept;
EngineCounters operator-(const EngineCounters& later, const EngineCounters& earlier);

}  // namespace millrace
