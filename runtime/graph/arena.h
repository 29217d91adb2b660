// The compute threads: a oneTBB task arena behind the Parallel interface.
// Owned by the engine. run() enters the arena; for_ranges() is called from inside it.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/base/function_ref.h"
#include "runtime/base/parallel.h"
#include "runtime/base/result.h"

namespace millrace {

class ComputeArena final : public Parallel {
 public:
  // `threads` compute threads in all, the calling one included (1 .. limits::threads_max), also
  // more than there are cores. `memory` error if the system does not start so many (oneTBB itself
  // would end the program when it finds out, in the middle of work).
  static Result<std::unique_ptr<ComputeArena>> create(unsigned threads);
  ~ComputeArena() override;
  ComputeArena(const ComputeArena&) = delete;
  ComputeArena& operator=(const ComputeArena&) = delete;

  // Runs `body` in the arena, in the calling thread, and returns when it is done.
  void run(FunctionRef<void()> body);
  // The calling thread's number in the arena: below workers().
  unsigned worker() const noexcept;

  unsigned workers() const noexcept override { return threads_; }
  // A body that waits here runs no other task of the arena meanwhile (scratch per worker stays its
  // own).
  void for_ranges(std::size_t count, std::size_t grain,
                  FunctionRef<void(std::size_t, std::size_t, unsigned)> body) override;

  struct Impl;
  Impl& impl() noexcept { return *impl_; }  // for the other files of runtime/graph/

 private:
  explicit ComputeArena(unsigned threads);
  unsigned threads_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
