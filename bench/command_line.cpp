#include "bench/command_line.h"

#include <fmt/format.h>

#include <cerrno>  // program_invocation_short_name
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace millrace::bench {

void die(const std::string& message) {
  fmt::print(stderr, "{}: {}\n", program_invocation_short_name, message);
  std::exit(1);
}

std::uint64_t number(std::string_view text, std::uint64_t most) {
  std::uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value == 0 || value > most)
    die(fmt::format("\"{}\" is no number of 1 to {}", text, most));
  return value;
}

}  // namespace millrace::bench
