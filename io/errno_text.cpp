#include "io/errno_text.h"

#include <fmt/format.h>

#include <cstring>
#include <system_error>

namespace millrace {

std::string errno_text(int errno_or_minus_one) {
  if (errno_or_minus_one == 0) return "no error";
  if (errno_or_minus_one < 0) return "unexpected end of file (was it truncated?)";
  const std::string words = std::generic_category().message(errno_or_minus_one);
  const char* name = strerrorname_np(errno_or_minus_one);
  return name == nullptr ? words : fmt::format("{} ({})", name, words);
}

}  // namespace millrace
