#include "tests/support/fake_scheduler.h"

#include <algorithm>
#include <cerrno>

#include "runtime/base/check.h"

namespace millrace::testing {

std::byte pattern_byte(std::uint32_t file, std::uint64_t offset) noexcept {
  std::uint64_t mixed = (offset >> 3) + (std::uint64_t{file} << 56) + 0x9e3779b97f4a7c15u;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebu;
  return static_cast<std::byte>(mixed >> (8 * (offset & 7)));
}

FakeScheduler::FakeScheduler(FakeSchedulerOptions options)
    : options_(std::move(options)), random_(options_.seed.value_or(0)) {
  queue_.reserve(4096);
  log_.reserve(options_.log_max);
}

FakeScheduler::~FakeScheduler() {
  while (RangeRead* range = take()) range->done(*range, ECANCELED);
}

bool FakeScheduler::step() {
  RangeRead* const range = take();
  if (range == nullptr) return false;
  range->done(*range, deliver(*range));
  return true;
}

void FakeScheduler::set_fault(std::uint32_t file, std::uint64_t offset, int status,
                              unsigned times) {
  faults_.push_back({file, offset, status, times});
}

std::size_t FakeScheduler::queued() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

void FakeScheduler::submit(std::span<RangeRead* const> ranges) noexcept {
  const std::lock_guard lock(mutex_);
  for (RangeRead* range : ranges) {
    MILLRACE_CHECK(range->bytes > 0 && range->needed_bytes <= range->bytes);
    MILLRACE_CHECK(std::find(queue_.begin(), queue_.end(), range) == queue_.end());
    range->source_file = range->file;
    queue_.push_back(range);
    if (log_.size() < options_.log_max)
      log_.push_back({range->file, range->offset_bytes, range->bytes, range->priority});
  }
}

void FakeScheduler::reprioritize(RangeRead& range, ReadPriority priority) noexcept {
  const std::lock_guard lock(mutex_);
  range.priority = priority;
}

bool FakeScheduler::cancel(RangeRead& range) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(queue_.begin(), queue_.end(), &range);
  if (found == queue_.end()) return false;
  queue_.erase(found);
  return true;
}

ReadStats FakeScheduler::stats() const noexcept {
  const std::lock_guard lock(mutex_);
  return stats_;
}

RangeRead* FakeScheduler::take() {
  const std::lock_guard lock(mutex_);
  if (queue_.empty()) return nullptr;
  auto at = queue_.begin();
  if (options_.seed.has_value()) {
    at += static_cast<std::ptrdiff_t>(random_() % queue_.size());
  } else {
    at = std::min_element(queue_.begin(), queue_.end(), [](const RangeRead* a, const RangeRead* b) {
      return a->priority < b->priority;
    });
  }
  RangeRead* const range = *at;
  queue_.erase(at);
  stats_.bytes += range->bytes;
  stats_.bytes_by_priority[static_cast<std::size_t>(range->priority)] += range->bytes;
  ++stats_.reads;
  return range;
}

int FakeScheduler::deliver(RangeRead& range) {
  std::optional<std::uint64_t> flipped;  // from the start of the range
  for (Fault& fault : faults_) {
    const bool covers = fault.file == range.file && fault.offset >= range.offset_bytes &&
                        fault.offset < range.offset_bytes + range.bytes;
    if (!covers || fault.times == 0) continue;
    --fault.times;
    if (fault.status != 0) return fault.status;
    flipped = fault.offset - range.offset_bytes;
  }
  if (range.offset_bytes + range.needed_bytes > options_.file_bytes[range.file]) return -1;
  if (options_.fill_targets)
    for (std::uint64_t i = 0; i < range.bytes; ++i)
      range.target[i] = pattern_byte(range.file, range.offset_bytes + i);
  if (flipped) range.target[*flipped] ^= std::byte{1};
  return 0;
}

}  // namespace millrace::testing
