// The compute threads: a oneTBB task arena behind the Parallel interface.
// Owned by the engine. run() enters the arena; for_ranges() is called from inside it.
//
// Two ways lead through for_ranges(): oneTBB's tasks, and while the caller has gathered a crew
// (CrewScope) that, for stretches of many short pieces of work: a token's way through a layer.
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

  // Inside run(), by one thread at a time: until release_crew() the calling thread's for_ranges()
  // are shared out to threads that stay awake in between. It waits for nothing else meanwhile.
  // `stay`: what is left of their patience they spend waiting for the next crew; else they are free
  // for tasks at once.
  void gather_crew() noexcept;
  void release_crew(bool stay) noexcept;

  struct Impl;
  Impl& impl() noexcept { return *impl_; }  // for the other files of runtime/graph/

 private:
  explicit ComputeArena(unsigned threads);
  void share_out(std::size_t count, std::size_t grain, unsigned leader,
                 FunctionRef<void(std::size_t, std::size_t, unsigned)> body);
  unsigned threads_;
  std::unique_ptr<Impl> impl_;
};

// A gathered crew, that stays for the next one.
class CrewScope {
 public:
  explicit CrewScope(ComputeArena& arena) : arena_(arena) { arena_.gather_crew(); }
  ~CrewScope() { arena_.release_crew(true); }
  CrewScope(const CrewScope&) = delete;
  CrewScope& operator=(const CrewScope&) = delete;

 private:
  ComputeArena& arena_;
};

}  // namespace millrace
