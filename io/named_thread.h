// A thread with a name that the system's tools show, all signals blocked (Ctrl-C goes to the main
// thread), joined by its owner. Starting it is a value that may fail, unlike std::thread.
#pragma once

#include <pthread.h>

#include <cstdint>

#include "runtime/base/result.h"

namespace millrace {

// Owned and joined by one thread.
class NamedThread {
 public:
  NamedThread() = default;
  // `name` has at most 15 characters. Fails with `memory` when the system starts no more threads.
  static Result<NamedThread> start(const char* name, void* (*body)(void*), void* context);
  NamedThread(NamedThread&& other) noexcept;
  NamedThread& operator=(NamedThread&& other) noexcept;
  NamedThread(const NamedThread&) = delete;
  NamedThread& operator=(const NamedThread&) = delete;
  ~NamedThread();  // must have been joined

  void join() noexcept;
  // CPU time used so far; 0 once it has ended. Any thread, while not joined.
  std::uint64_t cpu_ns() const noexcept;

 private:
  pthread_t thread_ = {};
  bool running_ = false;
};

}  // namespace millrace
