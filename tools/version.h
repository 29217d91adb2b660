// The program's version, as meson.build has it.
#pragma once

namespace millrace::tools {

inline constexpr const char* version = MILLRACE_VERSION;

}  // namespace millrace::tools
