#include "model/chat/jinja/budget.h"

#include <fmt/format.h>

namespace millrace::jinja {

std::string Budget::problem() const {
  if ((overdrawn_ & string_bit) != 0)
    return fmt::format("a text grows beyond {} bytes", limits::template_string_bytes_max);
  if ((overdrawn_ & memory_bit) != 0)
    return fmt::format("it needs more than {} bytes of memory", limits::template_memory_bytes_max);
  return fmt::format("it does not end within {} steps", steps_max_);
}

}  // namespace millrace::jinja
