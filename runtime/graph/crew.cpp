#include "runtime/graph/crew.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "runtime/base/units.h"

namespace millrace {

namespace {

constexpr std::uint64_t part_mask = 0xffff;
constexpr std::size_t parts_max = part_mask;  // of a piece
// A member that finds nothing to do spins so often, then lets others run between two looks, and
// goes home after so long.
constexpr unsigned spins_max = 200;
constexpr std::chrono::microseconds patience{300};

constexpr std::uint64_t share_word(std::uint32_t piece, std::size_t front,
                                   std::size_t back) noexcept {
  return std::uint64_t{piece} << 32 | std::uint64_t{front} << 16 | back;
}

void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void Crew::gather(unsigned leader) noexcept {
  open_.store(true, std::memory_order_relaxed);
  leader_.store(leader, std::memory_order_relaxed);
}

void Crew::release(bool stay) noexcept {
  leader_.store(nobody, std::memory_order_relaxed);
  if (!stay) open_.store(false, std::memory_order_relaxed);
}

// Some of what is left of a share: of the own one the next parts, of another's the last.
Crew::Taken Crew::take(unsigned share, bool own) noexcept {
  std::atomic<std::uint64_t>& left = shares_[share].left;
  std::uint64_t seen = left.load(std::memory_order_acquire);
  while (true) {
    const auto piece = static_cast<std::uint32_t>(seen >> 32);
    const std::size_t front = seen >> 16 & part_mask;
    const std::size_t back = seen & part_mask;
    if (front >= back) return {};
    const std::size_t some = std::max<std::size_t>(1, (back - front) / 4);
    const std::uint64_t rest =
        own ? share_word(piece, front + some, back) : share_word(piece, front, back - some);
    // Success says that the piece is still that one, as parts of it were left.
    if (left.compare_exchange_weak(seen, rest, std::memory_order_acq_rel,
                                   std::memory_order_acquire))
      return own ? Taken{front, front + some} : Taken{back - some, back};
  }
}

// Takes and runs parts until none is left; how many.
std::size_t Crew::work(unsigned worker) noexcept {
  std::size_t ran = 0;
  for (unsigned turn = 0; turn < threads_; ++turn) {
    const unsigned share = (worker + turn) % threads_;
    while (true) {
      const Taken parts = take(share, turn == 0);
      if (parts.begin == parts.end) break;
      (*body_)(parts.begin * step_, std::min(count_, parts.end * step_), worker);
      ran += parts.end - parts.begin;
    }
  }
  return ran;
}

void Crew::run(std::size_t count, std::size_t grain, unsigned leader, Body body) noexcept {
  sharing_ = true;
  const std::size_t least = (count + parts_max - 1) / parts_max;
  step_ = round_up(std::max(grain, least), grain);
  count_ = count;
  body_ = &body;
  const std::size_t parts = (count + step_ - 1) / step_;
  const std::uint32_t piece = piece_.load(std::memory_order_relaxed) + 1;
  done_.store(0, std::memory_order_relaxed);
  for (unsigned worker = 0; worker < threads_; ++worker)
    shares_[worker].left.store(
        share_word(piece, parts * worker / threads_, parts * (worker + 1) / threads_),
        std::memory_order_release);
  piece_.store(piece, std::memory_order_release);
  const std::size_t ran = work(leader);
  for (unsigned spins = 0; done_.load(std::memory_order_acquire) + ran < parts; ++spins) {
    if (spins < spins_max) relax();
    else std::this_thread::yield();
  }
  sharing_ = false;
}

void Crew::serve(unsigned worker) noexcept {
  std::uint32_t seen = piece_.load(std::memory_order_acquire) - 1;  // one may be under way
  while (open_.load(std::memory_order_relaxed)) {
    std::uint32_t now = piece_.load(std::memory_order_acquire);
    for (unsigned spins = 0; now == seen && spins < spins_max; ++spins) {
      relax();
      now = piece_.load(std::memory_order_acquire);
    }
    if (now == seen) {
      const auto start = std::chrono::steady_clock::now();
      while (now == seen && open_.load(std::memory_order_relaxed) &&
             std::chrono::steady_clock::now() - start < patience) {
        std::this_thread::yield();
        now = piece_.load(std::memory_order_acquire);
      }
      if (now == seen) break;
    }
    seen = now;
    done_.fetch_add(work(worker), std::memory_order_acq_rel);
  }
  sent_.fetch_sub(1, std::memory_order_release);
}

}  // namespace millrace
