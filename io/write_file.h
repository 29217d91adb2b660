// Whole small files, written so that readers see the old one or the new one, never half of it.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace millrace {

// The path that symbolic links at `path` lead to, whether there is something or not yet; where they
// lead in a circle, one of them.
std::string behind_links(const std::string& path);

// Writes a file beside `path` and renames it over it; permissions 0644 less the umask. What is no
// regular file (a pipe, /dev/stdout) is written to as it is; links stay, their target is written.
// Fails with `io`: "PATH: cause"; then nothing is left behind.
Status write_file_atomically(const std::string& path, std::string_view bytes);

}  // namespace millrace
