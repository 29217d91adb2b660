#include "runtime/presets.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "runtime/base/units.h"

namespace millrace {

std::span<const Preset> presets() noexcept {
  static constexpr std::array<Preset, 4> all = {{
      {"tiny", false, 1 * GiB, 1 * GiB},
      {"laptop", false, 8 * GiB, 4 * GiB},
      {"server", false, 64 * GiB, 48 * GiB},
      {"auto", true, 0, 0},
  }};
  return all;
}

Result<Preset> find_preset(std::string_view name) {
  std::string names;
  for (const Preset& preset : presets()) {
    if (name == preset.name) return preset;
    names += std::string(names.empty() ? "" : ", ") + preset.name;
  }
  return Error{ErrorCode::usage,
               fmt::format("--preset {}: there is no such preset (known: {})", name, names)};
}

}  // namespace millrace
