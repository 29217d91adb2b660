// The Reader on io_uring. liburing stays behind this header.
#pragma once

#include "io/reader.h"

namespace millrace {

// Fails with `io` and the reason where io_uring is refused or too old. Buffers that cannot be
// registered are read into plainly (buffers_reason). The reader must be used and destroyed by the
// thread that made it; the destructor waits for the reads in flight and runs none of their
// callbacks.
Result<MadeReader> make_uring_reader(const ReaderOptions& options);

// What this kernel and its rules let a ring do; rings are made and thrown away. `file`: an open
// one, to register.
struct UringFeatures {
  std::string refused;         // why there is no io_uring at all; empty: there is
  bool deferred_work = false;  // Linux 6.1: completions cost the owner no interrupts
  bool registered_files = false;
  bool registered_buffers = false;
  std::string buffers_reason;       // why not
  bool kernel_submits = false;      // SQPOLL
  bool polled_completions = false;  // IOPOLL: the ring is made; the drive may still refuse reads
};
UringFeatures probe_uring(const File& file);

}  // namespace millrace
