#include "runtime/base/log.h"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "runtime/base/utf8.h"

namespace millrace {

namespace {

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("millrace",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("millrace: %l: %v");
    made->set_level(spdlog::level::warn);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

spdlog::level::level_enum spdlog_level(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug:
      return spdlog::level::debug;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::off:
      return spdlog::level::off;
  }
  return spdlog::level::err;
}

LogLevel current_level = LogLevel::warning;

// Whether a character of UTF-8 turns the direction of the text around it, or breaks its line: it
// would show other words than there are (U+061C, U+200E, U+200F, U+2028 to U+202E, U+2066 to
// U+2069).
bool reorders(std::string_view character) {
  if (character == "\u061c") return true;
  if (character.size() != 3) return false;
  const std::string_view page = character.substr(0, 2);
  const auto last = static_cast<unsigned char>(character[2]);
  if (page == "\xe2\x80") return last == 0x8E || last == 0x8F || (last >= 0xA8 && last <= 0xAE);
  return page == "\xe2\x81" && last >= 0xA6 && last <= 0xA9;
}

}  // namespace

void set_log_level(LogLevel level) noexcept {
  current_level = level;
  logger().set_level(spdlog_level(level));
}

LogLevel log_level() noexcept { return current_level; }

void log_line(LogLevel level, std::string_view message) noexcept {
  logger().log(spdlog_level(level), spdlog::string_view_t(message.data(), message.size()));
}

std::string printable(std::string_view untrusted, std::size_t bytes_max) {
  std::string out;
  std::size_t position = 0;
  while (position < untrusted.size()) {
    if (out.size() >= bytes_max) return out + "…";
    const std::size_t length = utf8_valid_length(untrusted.substr(position));
    const auto first = static_cast<unsigned char>(untrusted[position]);
    const bool c1_control =
        length == 2 && first == 0xC2 && static_cast<unsigned char>(untrusted[position + 1]) < 0xA0;
    if (length == 0 || first < 0x20 || first == 0x7F || c1_control) {
      out += fmt::format("\\x{:02x}", first);
      ++position;
    } else if (const std::string_view character = untrusted.substr(position, length);
               reorders(character)) {
      for (const char byte : character)
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
      position += length;
    } else {
      out += character;
      position += length;
    }
  }
  return out;
}

}  // namespace millrace
