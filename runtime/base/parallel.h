// How library code below runtime/graph/ spreads work over threads without knowing oneTBB: it takes
// a Parallel&. runtime/graph/ implements it on the task arena; tests use SerialParallel. Results
// never depend on how ranges are cut.
#pragma once

#include <cstddef>

#include "runtime/base/function_ref.h"

namespace millrace {

class Parallel {
 public:
  virtual ~Parallel() = default;
  // Threads that may run a body at once; `worker` numbers passed to bodies are below this.
  virtual unsigned workers() const noexcept = 0;
  // Calls body(begin, end, worker) over disjoint ranges that cover [0, count), each at least
  // `grain` long (but the last), and returns when all are done. The body may not block on I/O and
  // may not throw. No allocation.
  virtual void for_ranges(
      std::size_t count, std::size_t grain,
      FunctionRef<void(std::size_t begin, std::size_t end, unsigned worker)> body) = 0;
};

// Everything in the calling thread.
class SerialParallel final : public Parallel {
 public:
  unsigned workers() const noexcept override { return 1; }
  void for_ranges(std::size_t count, std::size_t /*grain*/,
                  FunctionRef<void(std::size_t, std::size_t, unsigned)> body) override {
    if (count > 0) body(0, count, 0);
  }
};

}  // namespace millrace
