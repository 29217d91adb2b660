// The Reader for places without io_uring: threads that call pread.
#pragma once

#include "io/reader.h"

namespace millrace {

// Most threads that one reader starts; deeper queues wait in user space.
inline constexpr std::uint32_t reader_threads_max = 16;

// Registers no buffers. Fails with `memory` when the threads cannot be started. The destructor
// waits for the reads in flight and runs none of their callbacks.
Result<MadeReader> make_threads_reader(const ReaderOptions& options);

}  // namespace millrace
