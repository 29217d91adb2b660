// Dates as text, in English whatever the machine's locale.
#pragma once

#include <string>
#include <string_view>

#include "model/chat/jinja/template.h"
#include "runtime/base/result.h"

namespace millrace::jinja {

// strftime's %a %A %b %B %d %e %F %H %I %j %m %M %p %S %T %y %Y %% and %-d (no leading zero, as for
// other numbers). `format` errors name what it does not know.
Result<std::string> format_moment(const Moment& moment, std::string_view format);

}  // namespace millrace::jinja
