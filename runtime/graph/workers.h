// Several threads at one piece of work that deals itself out: each takes the next part until none
// is left. For work that reads or writes files beside the engine's own threads.
#pragma once

#include <atomic>

#include "runtime/base/function_ref.h"
#include "runtime/base/result.h"

namespace millrace {

struct Workers {
  const char* name;     // of the threads, at most 15 characters
  const char* doing;    // "verifying", for messages
  unsigned wanted = 1;  // the calling thread among them
  unsigned least = 1;
};

// Calls body(0) on the calling thread and body(1), body(2)... on others, and returns when all have.
// Where the system starts fewer than wanted, those that there are do it all, with one warning;
// `memory` error, and nothing called, if they are fewer than `least`. One that throws
// (std::bad_alloc most likely) sets `stop`, at which the bodies must end soon: `memory` error, else
// `io`.
Status run_workers(const Workers& workers, std::atomic<bool>& stop,
                   FunctionRef<void(unsigned worker)> body);

}  // namespace millrace
