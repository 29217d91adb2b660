#include "io/named_thread.h"

#include <fmt/format.h>
#include <signal.h>
#include <time.h>

#include <utility>

#include "io/errno_text.h"

namespace millrace {

Result<NamedThread> NamedThread::start(const char* name, void* (*body)(void*), void* context) {
  NamedThread made;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failure = pthread_create(&made.thread_, nullptr, body, context);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failure != 0) {
    return Error{ErrorCode::memory,
                 fmt::format("starting thread {}: {}: raise the limit on threads (`ulimit -u`, "
                             "pids.max of the cgroup) or give it more memory",
                             name, errno_text(failure))};
  }
  made.running_ = true;
  pthread_setname_np(made.thread_, name);
  return made;
}

NamedThread::NamedThread(NamedThread&& other) noexcept
    : thread_(other.thread_), running_(std::exchange(other.running_, false)) {}

NamedThread& NamedThread::operator=(NamedThread&& other) noexcept {
  MILLRACE_CHECK(!running_);
  thread_ = other.thread_;
  running_ = std::exchange(other.running_, false);
  return *this;
}

NamedThread::~NamedThread() { MILLRACE_CHECK(!running_); }

void NamedThread::join() noexcept {
  if (!running_) return;
  MILLRACE_CHECK(pthread_join(thread_, nullptr) == 0);
  running_ = false;
}

std::uint64_t NamedThread::cpu_ns() const noexcept {
  clockid_t clock = {};
  timespec used = {};
  if (!running_ || pthread_getcpuclockid(thread_, &clock) != 0) return 0;
  if (clock_gettime(clock, &used) != 0) return 0;
  return static_cast<std::uint64_t>(used.tv_sec) * 1'000'000'000u +
         static_cast<std::uint64_t>(used.tv_nsec);
}

}  // namespace millrace
