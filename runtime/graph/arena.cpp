#include "runtime/graph/arena.h"

#include <fmt/format.h>
#include <pthread.h>
#include <tbb/blocked_range.h>
#include <tbb/parallel_for.h>
#include <tbb/partitioner.h>

#include <algorithm>
#include <latch>
#include <thread>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/base/limits.h"
#include "runtime/base/units.h"
#include "runtime/graph/arena_impl.h"

namespace millrace {

namespace {

// How many of `wanted` threads the system starts at once, each with a stack as large as oneTBB's
// workers have. They end before this returns.
unsigned startable_threads(unsigned wanted) {
  constexpr std::size_t worker_stack_bytes = 4 * MiB;
  std::vector<pthread_t> threads(wanted);
  std::latch all_tried(1);
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return 0;
  pthread_attr_setstacksize(&attributes, worker_stack_bytes);
  const auto wait_for_all = [](void* latch) -> void* {
    static_cast<std::latch*>(latch)->wait();
    return nullptr;
  };
  unsigned started = 0;
  while (started < wanted &&
         pthread_create(&threads[started], &attributes, wait_for_all, &all_tried) == 0)
    ++started;
  all_tried.count_down();
  for (unsigned i = 0; i < started; ++i) pthread_join(threads[i], nullptr);
  pthread_attr_destroy(&attributes);
  return started;
}

}  // namespace

ComputeArena::ComputeArena(unsigned threads)
    : threads_(threads), impl_(std::make_unique<Impl>(threads)) {
  MILLRACE_CHECK(threads >= 1 && threads <= limits::threads_max);
}

Result<std::unique_ptr<ComputeArena>> ComputeArena::create(unsigned threads) {
  const unsigned started = startable_threads(threads - 1);
  if (started + 1 < threads)
    return Error{ErrorCode::memory,
                 fmt::format("the system starts only {} of {} compute threads (limits of processes "
                             "or of address space): use -t {} or fewer",
                             started + 1, threads, started + 1)};
  return std::unique_ptr<ComputeArena>(new ComputeArena(threads));
}

ComputeArena::~ComputeArena() {
  impl_->crew.release(false);
  while (impl_->crew.any_out()) std::this_thread::yield();
}

void ComputeArena::run(FunctionRef<void()> body) {
  impl_->arena.execute([&] { body(); });
}

unsigned ComputeArena::worker() const noexcept {
  const int index = tbb::this_task_arena::current_thread_index();
  MILLRACE_CHECK(index >= 0 && static_cast<unsigned>(index) < threads_);
  return static_cast<unsigned>(index);
}

void ComputeArena::for_ranges(std::size_t count, std::size_t grain,
                              FunctionRef<void(std::size_t, std::size_t, unsigned)> body) {
  if (count == 0) return;
  const unsigned caller = worker();
  if (threads_ == 1 || count <= grain) {
    body(0, count, caller);
    return;
  }
  if (impl_->crew.led_by(caller)) {
    share_out(count, grain, caller, body);
    return;
  }
  // A few ranges per thread even out unequal speeds; multiples of the grain keep register tiles
  // whole.
  constexpr std::size_t ranges_per_thread = 3;
  const std::size_t share =
      (count + threads_ * ranges_per_thread - 1) / (threads_ * ranges_per_thread);
  const std::size_t step = round_up(std::max(grain, share), grain);
  const std::size_t ranges = (count + step - 1) / step;
  tbb::this_task_arena::isolate([&] {
    tbb::parallel_for(
        tbb::blocked_range<std::size_t>(0, ranges, 1),
        [&](const tbb::blocked_range<std::size_t>& part) {
          for (std::size_t i = part.begin(); i != part.end(); ++i)
            body(i * step, std::min(count, (i + 1) * step), worker());
        },
        tbb::simple_partitioner());
  });
}

void ComputeArena::gather_crew() noexcept {
  if (threads_ > 1) impl_->crew.gather(worker());
}

void ComputeArena::release_crew(bool stay) noexcept {
  if (threads_ > 1) impl_->crew.release(stay);
}

// Those who went home are sent for again; this piece of work does not wait for them.
void ComputeArena::share_out(std::size_t count, std::size_t grain, unsigned leader,
                             FunctionRef<void(std::size_t, std::size_t, unsigned)> body) {
  Crew& crew = impl_->crew;
  for (unsigned missing = crew.missing(); missing > 0; --missing) {
    crew.note_sent();
    impl_->arena.enqueue([this, &crew] { crew.serve(worker()); });
  }
  crew.run(count, grain, leader, body);
}

}  // namespace millrace
