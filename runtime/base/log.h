// The one logger: lines on stderr, "millrace: warning: …". spdlog and fmt stay behind this
// interface. Text that came from a file is passed through printable() first, so that no terminal
// escape gets out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace millrace {

enum class LogLevel : std::uint8_t { debug, info, warning, error, off };

// Lines below `level` are dropped. Set once at start (-v: debug, default: warning, -q: error). Any
// thread may log.
void set_log_level(LogLevel level) noexcept;
LogLevel log_level() noexcept;
void log_line(LogLevel level, std::string_view message) noexcept;

inline void log_debug(std::string_view message) noexcept { log_line(LogLevel::debug, message); }
inline void log_info(std::string_view message) noexcept { log_line(LogLevel::info, message); }
inline void log_warning(std::string_view message) noexcept { log_line(LogLevel::warning, message); }
inline void log_error(std::string_view message) noexcept { log_line(LogLevel::error, message); }

// Control characters and invalid UTF-8 as \xNN; at most `bytes_max` bytes, then "…".
std::string printable(std::string_view untrusted, std::size_t bytes_max = 200);

}  // namespace millrace
