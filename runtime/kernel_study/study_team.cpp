#include "runtime/kernel_study/study_team.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "runtime/base/clock.h"

namespace millrace {

Result<StudyTeam> StudyTeam::create(unsigned threads) {
  MILLRACE_ASSIGN(auto arena, ComputeArena::create(threads));
  return StudyTeam(std::move(arena));
}

double StudyTeam::run(unsigned passes, FunctionRef<void(unsigned)> work) {
  const unsigned threads = arena_->workers();
  std::atomic<unsigned> waiting = threads;
  std::atomic<std::uint64_t> start_ns = 0, end_ns = 0;
  const auto take_part = [&](std::size_t, std::size_t, unsigned number) {
    if (waiting.fetch_sub(1) == 1) start_ns.store(system_clock().now_ns());
    while (start_ns.load(std::memory_order_acquire) == 0)
      std::this_thread::yield();  // so that no thread takes two parts
    for (unsigned i = 0; i < passes; ++i) work(number);
    const std::uint64_t now = system_clock().now_ns();
    std::uint64_t last = end_ns.load();
    while (last < now && !end_ns.compare_exchange_weak(last, now)) {
    }
  };
  arena_->run([&] { arena_->for_ranges(threads, 1, take_part); });
  return static_cast<double>(std::max<std::uint64_t>(1, end_ns.load() - start_ns.load())) * 1e-9;
}

}  // namespace millrace
