#include "runtime/graph/workers.h"

#include <fmt/format.h>

#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "io/named_thread.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

// What they share, on the stack of the calling thread.
struct Shared {
  const Workers& workers;
  std::atomic<bool>& stop;
  FunctionRef<void(unsigned)> body;
  std::atomic<unsigned> next{1};
  std::mutex mutex = {};
  bool dealt = false;  // whether the others may begin, under mutex; they wait for it
  std::optional<Error> error = {};

  // A door for exceptions: none may leave a thread, nor leave the others behind.
  void call(unsigned worker) noexcept {
    ErrorCode code = ErrorCode::memory;
    try {
      return body(worker);
    } catch (const std::bad_alloc&) {
    } catch (const std::exception&) {
      code = ErrorCode::io;
    }
    stop.store(true);
    const std::lock_guard lock(mutex);
    if (!error) error = Error{code, {}};  // its text is made when the memory of all is back
  }

  static void* run(void* context) {
    Shared& shared = *static_cast<Shared*>(context);
    { const std::lock_guard wait_for_all(shared.mutex); }
    if (shared.dealt) shared.call(shared.next.fetch_add(1));
    return nullptr;
  }
};

struct Threads {
  std::vector<NamedThread> list;
  void join() noexcept {
    for (NamedThread& thread : list) thread.join();
  }
  ~Threads() { join(); }  // if starting one throws: the others are waiting and then end
};

Error told(const Workers& workers, ErrorCode code) {
  if (code == ErrorCode::memory)
    return {code, fmt::format("{}: out of memory: raise the limit on it (`ulimit -v`, memory.max "
                              "of the cgroup)",
                              workers.doing)};
  return {code, fmt::format("{}: a thread failed", workers.doing)};
}

}  // namespace

Status run_workers(const Workers& workers, std::atomic<bool>& stop,
                   FunctionRef<void(unsigned worker)> body) {
  std::optional<Error> refused;
  unsigned there = 1;
  const auto warn_and_call = [&](unsigned worker) {
    if (worker == 0 && refused)
      log_warning(fmt::format("{} with {} of {} threads: {}", workers.doing, there, workers.wanted,
                              refused->what));
    body(worker);
  };
  Shared shared{workers, stop, warn_and_call};
  Threads started;  // gone before what they share
  started.list.reserve(workers.wanted);
  {
    const std::lock_guard lock(shared.mutex);
    while (!refused && there < workers.wanted) {
      auto thread = NamedThread::start(workers.name, &Shared::run, &shared);
      if (!thread) {
        refused = std::move(thread).error();
      } else {
        started.list.push_back(*std::move(thread));
        ++there;
      }
    }
    shared.dealt = there >= workers.least;
  }
  if (shared.dealt) shared.call(0);
  started.join();
  if (!shared.dealt) return *std::move(refused);
  if (shared.error) return told(workers, shared.error->code);
  return {};
}

}  // namespace millrace
