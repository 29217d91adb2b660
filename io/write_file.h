// Whole small files: read at once, or written so that readers see the old one or the new one, never
// half of it.
#pragma once

#include <cstdint>
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
// The same, but whatever is at `path` gives way, also a pipe or a link: for files that are ours.
Status replace_file(const std::string& path, std::string_view bytes);

// What a failed writing in place has left at `path`, or where its links lead; what is no regular
// file stays.
void remove_unfinished(const std::string& path);

// All bytes of a regular file; anything else (a pipe, a device) is refused without waiting for it.
// `io`, or `format` if there are more than `bytes_max`: "PATH: cause".
Result<std::string> read_whole_file(const std::string& path, std::uint64_t bytes_max);

}  // namespace millrace
