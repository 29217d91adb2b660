// What every bench measures with: time of repeated runs, their median and best, and a sink for
// results so that no work can be left out. One thread.
#pragma once

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/base/check.h"

namespace millrace::bench {

// Rates of the runs of one kernel, in GB/s of the bytes that it must read.
struct Rates {
  double best = 0;
  double median = 0;
};

// CPU time of this thread: other programs on the machine take cores away, and that is not the
// kernel's doing. (They also take memory bandwidth; only an idle machine gives figures to publish.)
inline double thread_seconds() {
  timespec now{};
  MILLRACE_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Runs `work` (one pass over `bytes`) `repeats` times after one pass to warm up. Each time covers
// as many passes as take about a millisecond.
template <class Work>
Rates measure_rates(std::size_t bytes, unsigned repeats, Work work) {
  const auto seconds = [&work](std::size_t passes) {
    const double start = thread_seconds();
    for (std::size_t i = 0; i < passes; ++i) work();
    return thread_seconds() - start;
  };
  const double once = std::max(seconds(1), 1e-7);
  const auto passes = static_cast<std::size_t>(std::max(1.0, 1e-3 / once));
  std::vector<double> rates;
  for (unsigned i = 0; i < repeats; ++i)
    rates.push_back(static_cast<double>(bytes * passes) / seconds(passes) / 1e9);
  std::sort(rates.begin(), rates.end());
  return {rates.back(), rates[rates.size() / 2]};
}

// Memory as the runtime streams weights from: anonymous, huge pages asked for, touched.
class HugeMemory {
 public:
  explicit HugeMemory(std::size_t bytes) : bytes_((bytes + huge - 1) / huge * huge + huge) {
    base_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MILLRACE_CHECK(base_ != MAP_FAILED);
    const auto at = reinterpret_cast<std::uintptr_t>(base_);
    data_ = reinterpret_cast<std::byte*>((at + huge - 1) / huge * huge);
    static_cast<void>(madvise(data_, bytes_ - huge, MADV_HUGEPAGE));
  }
  ~HugeMemory() { munmap(base_, bytes_); }
  HugeMemory(const HugeMemory&) = delete;
  HugeMemory& operator=(const HugeMemory&) = delete;
  std::byte* data() { return data_; }

 private:
  static constexpr std::size_t huge = std::size_t{2} << 20;
  std::size_t bytes_;
  void* base_;
  std::byte* data_;
};

// Folds results into a checksum that is printed.
class Checksum {
 public:
  void add(std::uint64_t value) { sum_ = (sum_ ^ value) * 0x100000001b3ull; }
  std::uint64_t value() const { return sum_; }

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325ull;
};

}  // namespace millrace::bench
