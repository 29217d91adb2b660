// What a drive gives at this moment, in a fifth of a second: profiles and learned rates are of
// other hours, and drives that are shared (or warm) change within minutes.
#pragma once

#include <cstdint>

#include "io/file.h"
#include "runtime/floor/run_floor.h"

namespace millrace {

// Direct reads all over `file`, into registered huge pages, at that piece size and depth. Nothing
// where the file is not direct, a read fails, or the system refuses ring or memory. Takes 64 MiB at
// most while it runs. One thread.
FloorFigure drive_now(const File& file, std::uint64_t piece_bytes, std::uint32_t depth);

}  // namespace millrace
