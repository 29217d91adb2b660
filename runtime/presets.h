// Named starting points for the planner: sizes of the expert cache and of the pinned trunk.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "runtime/base/result.h"

namespace millrace {

struct Preset {
  const char* name;
  bool automatic;             // sizes from this machine
  std::uint64_t cache_bytes;  // ignored when automatic
  std::uint64_t trunk_bytes;
};

std::span<const Preset> presets() noexcept;

// `usage` error that lists the names if there is none called `name`.
Result<Preset> find_preset(std::string_view name);

}  // namespace millrace
