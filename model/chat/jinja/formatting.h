// Python's two ways to put values into a text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "model/chat/jinja/value.h"
#include "runtime/base/result.h"

namespace millrace::jinja {

// text % values: %s %r %d %i %u %f %F %e %g %x %X %o %c %% with flags, width and precision.
ValueResult percent_format(const TextRef& text, const std::vector<Value>& values, Budget& budget);

// text.format(…): {}, {0}, {name} and {{ }}; conversions and format specifications are refused.
ValueResult brace_format(const TextRef& text, const std::vector<Value>& positional,
                         const std::vector<std::pair<std::string, Value>>& keywords,
                         Budget& budget);

}  // namespace millrace::jinja
