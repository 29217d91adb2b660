// Crew: idle threads of an arena that stay awake between many short pieces of shared work, and take
// ranges of the next one within a fraction of a microsecond. Owned by ComputeArena, whose
// for_ranges() goes here while a crew is gathered. No oneTBB here: the arena sends its workers into
// serve().
//
// The ranges of a piece are dealt out as one consecutive stretch per worker number, so that each
// core reads memory in order; whoever is through with his own takes from the ends of the others'.
// Nobody has to come: what absent workers leave is taken by those who are there.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "runtime/base/function_ref.h"
#include "runtime/base/limits.h"

namespace millrace {

class Crew {
 public:
  using Body = FunctionRef<void(std::size_t begin, std::size_t end, unsigned worker)>;

  // For workers 0 .. threads - 1, the leader among them.
  explicit Crew(unsigned threads) : threads_(threads) {}

  // The thread with this worker number shares out work from now on, until release().
  void gather(unsigned leader) noexcept;
  // Members go on waiting for a while (true), or go home at once.
  void release(bool stay) noexcept;
  bool led_by(unsigned worker) const noexcept {
    return leader_.load(std::memory_order_relaxed) == worker && !sharing_;
  }

  // How many more members may be sent: of those that are sent each runs serve() once.
  unsigned missing() const noexcept { return threads_ - 1 - sent_.load(std::memory_order_relaxed); }
  void note_sent() noexcept { sent_.fetch_add(1, std::memory_order_relaxed); }
  // Takes part until the crew is released or nothing has come for a while.
  void serve(unsigned worker) noexcept;
  // Whether someone was sent who has not come back.
  bool any_out() const noexcept { return sent_.load(std::memory_order_acquire) > 0; }

  // By the leader: body(begin, end, worker) over all of [0, count) in multiples of `grain`.
  void run(std::size_t count, std::size_t grain, unsigned leader, Body body) noexcept;

 private:
  static constexpr unsigned nobody = ~0u;
  // Of one worker: the parts from `front` to `back` of piece `piece` are not taken yet.
  struct alignas(64) Share {
    std::atomic<std::uint64_t> left = 0;
  };
  struct Taken {
    std::size_t begin = 0, end = 0;  // parts
  };
  Taken take(unsigned share, bool own) noexcept;
  std::size_t work(unsigned worker) noexcept;

  const unsigned threads_;
  std::atomic<unsigned> leader_ = nobody;
  std::atomic<bool> open_ = false;
  std::atomic<unsigned> sent_ = 0;
  bool sharing_ = false;  // the leader's own: a body that shares out work again is on its own

  // Of the piece at work; written by the leader while no part is left.
  std::size_t count_ = 0, step_ = 0;
  const Body* body_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> piece_ = 0;
  alignas(64) std::atomic<std::size_t> done_ = 0;
  std::array<Share, limits::threads_max> shares_;
};

}  // namespace millrace
