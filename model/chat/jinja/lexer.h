// Template source to tokens, with the settings that chat templates are written for: trim_blocks
// (the newline after a block tag goes), lstrip_blocks (blanks before a block tag that begins its
// line go), and one newline at the end of the source dropped.
#pragma once

#include <string_view>

#include "model/chat/jinja/token.h"
#include "runtime/base/result.h"

namespace millrace::jinja {

// `format` errors name the line: unclosed tags and strings, characters that no token begins with,
// numbers that are too large. The source must be valid UTF-8.
Result<Tokens> tokenize(std::string_view source);

}  // namespace millrace::jinja
