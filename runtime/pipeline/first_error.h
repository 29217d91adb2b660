// The first error of a run that many threads work on: later ones are dropped. Any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>

#include "runtime/base/result.h"

namespace millrace {

class FirstError {
 public:
  void set(Error error) noexcept {
    const std::lock_guard lock(mutex_);
    if (set_) return;
    error_ = std::move(error);
    set_ = true;
  }
  bool is_set() const noexcept { return set_.load(std::memory_order_relaxed); }
  // When nobody else works on the run: before it, or after.
  void clear() noexcept { set_ = false; }
  const Error& error() const noexcept { return error_; }

 private:
  std::atomic<bool> set_ = false;
  std::mutex mutex_;
  Error error_{ErrorCode::io, {}};
};

}  // namespace millrace
