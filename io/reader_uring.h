// The Reader on io_uring. liburing stays behind this header.
#pragma once

#include "io/reader.h"

namespace millrace {

// Fails with `io` and the reason where io_uring is refused or too old. Buffers that cannot be
// registered are read into plainly (buffers_reason). The reader must be used and destroyed by the
// thread that made it; the destructor waits for the reads in flight and runs none of their
// callbacks.
Result<MadeReader> make_uring_reader(const ReaderOptions& options);

}  // namespace millrace
