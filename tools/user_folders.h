// Where this user's files lie, by the XDG base directory rules.
#pragma once

#include <string>

namespace millrace::tools {

// $XDG_CACHE_HOME/millrace, or .cache/millrace at home; empty if neither is known (nothing is kept
// then). The folder need not exist.
std::string cache_folder();

}  // namespace millrace::tools
