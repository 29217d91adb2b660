// Python's string escapes.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace millrace::jinja {

// What stands between the quotes of a literal, decoded. Unknown escapes stay as they are, as in
// Python. `format` error for malformed ones (\x, \u without their digits) and for \N{name}.
Result<std::string> decode_string_literal(std::string_view literal);

}  // namespace millrace::jinja
