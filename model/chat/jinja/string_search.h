// Finding texts in texts in linear time, whatever the two are, with the work counted.
#pragma once

#include <cstddef>
#include <string_view>

#include "model/chat/jinja/budget.h"

namespace millrace::jinja {

// Byte position of the first occurrence at or after `from`; npos if there is none. An empty needle
// is found at once.
std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from,
                      Budget& budget);
// The last occurrence.
std::size_t find_last_text(std::string_view text, std::string_view needle, Budget& budget);

}  // namespace millrace::jinja
