#include "runtime/kernel_study/study_team.h"

#include <time.h>

#include <atomic>
#include <thread>

#include "runtime/base/check.h"

namespace millrace {

namespace {

std::uint64_t thread_ns() {
  timespec now{};
  MILLRACE_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

}  // namespace

Result<StudyTeam> StudyTeam::create(unsigned threads) {
  MILLRACE_ASSIGN(auto arena, ComputeArena::create(threads));
  return StudyTeam(std::move(arena));
}

double StudyTeam::run(unsigned passes, FunctionRef<void(unsigned)> work) {
  const unsigned threads = arena_->workers();
  std::atomic<unsigned> waiting = threads;
  std::atomic<std::uint64_t> longest_ns = 1;
  const auto take_part = [&](std::size_t, std::size_t, unsigned number) {
    waiting.fetch_sub(1);
    while (waiting.load() > 0) std::this_thread::yield();  // so that no thread takes two parts
    const std::uint64_t start = thread_ns();
    for (unsigned i = 0; i < passes; ++i) work(number);
    const std::uint64_t took = thread_ns() - start;
    std::uint64_t longest = longest_ns.load();
    while (longest < took && !longest_ns.compare_exchange_weak(longest, took)) {
    }
  };
  arena_->run([&] { arena_->for_ranges(threads, 1, take_part); });
  return static_cast<double>(longest_ns.load()) * 1e-9;
}

}  // namespace millrace
