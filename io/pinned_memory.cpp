#include "io/pinned_memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "io/errno_text.h"
#include "io/named_thread.h"
#include "runtime/base/check.h"
#include "runtime/base/units.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23  // Linux 5.14
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1
#endif

namespace millrace {

namespace {

constexpr std::uint64_t page_bytes = 4096;
constexpr std::uint64_t huge_page_bytes = 2 * MiB;
// A segment is rounded up to whole huge pages where that wastes little of it, always from 32 MiB
// on: kernels read small pages more slowly (of a small model's layer of 3.6 MiB they would be
// nearly half), and the README says what one costs a registered segment.
constexpr std::uint64_t waste_divisor = 6;
constexpr std::uint64_t whole_huge_from_bytes = 32 * MiB;

// How blocks are spread over segments.
struct SegmentPlan {
  std::uint64_t block_bytes = 0;
  std::uint64_t blocks_each = 0;  // per segment; the last may hold fewer

  std::uint64_t segment_bytes(std::uint64_t blocks) const noexcept {
    const std::uint64_t bytes = blocks * block_bytes;
    const std::uint64_t whole = round_up(bytes, huge_page_bytes);
    const bool cheap = bytes >= whole_huge_from_bytes || whole - bytes <= bytes / waste_divisor;
    return cheap ? whole : bytes;
  }
};

SegmentPlan plan_segments(std::uint64_t bytes_each, std::uint64_t segment_bytes_max) noexcept {
  SegmentPlan plan;
  plan.block_bytes = round_up(bytes_each, page_bytes);
  const std::uint64_t most = std::min(segment_bytes_max, limits::segment_bytes_max);
  plan.blocks_each = std::max<std::uint64_t>(1, most / plan.block_bytes);
  return plan;
}

// No size that fits the address space; also keeps the sums below from overflowing.
bool absurd(std::uint64_t count, std::uint64_t bytes_each) noexcept {
  constexpr std::uint64_t bytes_max = std::uint64_t{1} << 47;
  return bytes_each > bytes_max || (count != 0 && bytes_each > bytes_max / count);
}

std::uint64_t memlock_limit() noexcept {
  rlimit limit = {};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 0;
  return limit.rlim_cur;
}

Error refused(std::uint64_t bytes, const char* call, int code) {
  return Error{ErrorCode::memory,
               fmt::format("pinned memory: {} of {} failed: {}: lower --cache or --trunk, or raise "
                           "the memory limit (`ulimit -v`, vm.overcommit_memory, the cgroup)",
                           call, format_bytes(bytes), errno_text(code))};
}

// What the system maps and unmaps: 4, 16 or 64 KiB on ARM.
std::uint64_t system_page_bytes() noexcept {
  const long bytes = sysconf(_SC_PAGESIZE);
  return bytes > 0 ? static_cast<std::uint64_t>(bytes) : page_bytes;
}

// Maps `bytes` of zeroes, aligned to huge pages if at least one fits.
Result<std::span<std::byte>> map_segment(std::uint64_t bytes) {
  const std::uint64_t page = system_page_bytes();
  const std::uint64_t mapped_bytes = round_up(bytes, page);
  const std::uint64_t alignment = bytes >= huge_page_bytes ? huge_page_bytes : page;
  const std::uint64_t room = mapped_bytes + alignment - page;
  void* mapped = mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return refused(bytes, "mmap", errno);
  auto* const start = static_cast<std::byte*>(mapped);
  const std::uint64_t head = round_up(reinterpret_cast<std::uintptr_t>(start), alignment) -
                             reinterpret_cast<std::uintptr_t>(start);
  if (head > 0) munmap(start, head);
  if (room > head + mapped_bytes) munmap(start + head + mapped_bytes, room - head - mapped_bytes);
  return std::span<std::byte>(start + head, bytes);
}

// Brings a part's pages in, huge where the system gives them.
Status populate_part(std::span<std::byte> part) {
  int failure = 0;
  do {
    failure = madvise(part.data(), part.size(), MADV_POPULATE_WRITE) == 0 ? 0 : errno;
  } while (failure == EINTR || failure == EAGAIN);
  if (failure == EINVAL || failure == ENOSYS) {  // older than Linux 5.14
    for (std::size_t at = 0; at < part.size(); at += page_bytes) {
      *reinterpret_cast<volatile std::byte*>(part.data() + at) = std::byte{0};
    }
  } else if (failure != 0) {  // ENOMEM, EFAULT, EHWPOISON
    return refused(part.size(), "populating", failure);
  }
  const std::size_t whole = round_down(part.size(), huge_page_bytes);
  if (whole > 0) madvise(part.data(), whole, MADV_COLLAPSE);  // what is not huge yet
  return {};
}

// The parts that threads bring in side by side: a page's first touch costs the kernel its zeroing,
// on a virtual machine the host's work too, and one thread does only so many.
struct PopulateWork {
  std::vector<std::span<std::byte>> parts;
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  Status failed;  // the first that did; under the mutex

  void run() {
    for (std::size_t at = next++; at < parts.size(); at = next++) {
      const Status status = populate_part(parts[at]);
      if (status) continue;
      const std::scoped_lock lock(mutex);
      if (failed) failed = status;
      next = parts.size();
    }
  }
  static void* run_thread(void* work) {
    static_cast<PopulateWork*>(work)->run();
    return nullptr;
  }
};

// Brings every page in. The advice may fail unnoticed.
Status populate(std::span<const std::span<std::byte>> segments) {
  constexpr std::size_t part_bytes = 64 * MiB, threads_max = 8;
  PopulateWork work;
  for (const std::span<std::byte> segment : segments) {
    madvise(segment.data(), segment.size(), MADV_HUGEPAGE);
    madvise(segment.data(), segment.size(), MADV_DONTDUMP);  // a core file without the weights
    madvise(segment.data(), segment.size(), MADV_DONTFORK);  // no copy-on-write under the DMA
    for (std::size_t at = 0; at < segment.size(); at += part_bytes)
      work.parts.push_back(segment.subspan(at, std::min(part_bytes, segment.size() - at)));
  }
  const std::size_t wanted = std::min<std::size_t>(
      {std::max(1u, std::thread::hardware_concurrency()), threads_max, work.parts.size()});
  std::vector<NamedThread> helpers;
  while (helpers.size() + 1 < wanted) {
    auto helper = NamedThread::start("mr-populate", PopulateWork::run_thread, &work);
    if (!helper) break;  // fewer do it, too
    helpers.push_back(*std::move(helper));
  }
  work.run();
  for (NamedThread& helper : helpers) helper.join();
  return work.failed;
}

// Why mlock failed, with the numbers; `needed` is all pinned memory.
std::string unlocked_text(int code, std::uint64_t needed) {
  const std::uint64_t limit = memlock_limit();
  if (limit != RLIM_INFINITY && (code == ENOMEM || code == EPERM || code == EAGAIN)) {
    return fmt::format(
        "RLIMIT_MEMLOCK is {}, {} needed: raise it with `ulimit -l {}` (as root, or memlock in "
        "/etc/security/limits.conf, or LimitMEMLOCK= of the service)",
        format_bytes(limit), format_bytes(needed), (needed + KiB - 1) / KiB);
  }
  return fmt::format("mlock of {} failed: {}", format_bytes(needed), errno_text(code));
}

struct AddressRange {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

std::uint64_t overlap(AddressRange a, std::span<const std::span<std::byte>> segments) noexcept {
  std::uint64_t bytes = 0;
  for (const std::span<std::byte> segment : segments) {
    const auto begin = reinterpret_cast<std::uintptr_t>(segment.data());
    const std::uintptr_t low = std::max(a.begin, begin);
    const std::uintptr_t high = std::min(a.end, begin + segment.size());
    if (low < high) bytes += high - low;
  }
  return bytes;
}

// AnonHugePages of the mappings that hold the segments. The kernel may have merged neighbours into
// one mapping, so a mapping counts for no more than what it shares with us.
std::uint64_t huge_bytes_of(std::span<const std::span<std::byte>> segments) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> smaps(std::fopen("/proc/self/smaps", "re"),
                                                              std::fclose);
  if (smaps == nullptr) return 0;
  char line[512];
  std::uint64_t shared = 0;
  std::uint64_t total = 0;
  while (std::fgets(line, sizeof line, smaps.get()) != nullptr) {
    char* after = nullptr;
    AddressRange range;
    range.begin = std::strtoull(line, &after, 16);
    if (after != line && *after == '-') {
      range.end = std::strtoull(after + 1, nullptr, 16);
      shared = overlap(range, segments);
    } else if (shared != 0 && std::strncmp(line, "AnonHugePages:", 14) == 0) {
      total += std::min<std::uint64_t>(shared, std::strtoull(line + 14, nullptr, 10) * KiB);
    }
  }
  return total;
}

}  // namespace

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  segments_.swap(other.segments_);
  states_.swap(other.states_);
  std::swap(locked_bytes_, other.locked_bytes_);
  unlocked_reason_.swap(other.unlocked_reason_);
  return *this;
}

PinnedMemory::~PinnedMemory() {
  for (const std::span<std::byte> segment : segments_) munmap(segment.data(), segment.size());
}

Result<std::vector<PinnedBlock>> PinnedMemory::allocate(std::uint64_t count,
                                                        std::uint64_t bytes_each,
                                                        std::uint64_t segment_bytes_max) {
  std::vector<PinnedBlock> blocks;
  if (count == 0 || bytes_each == 0) return blocks;
  if (absurd(count, bytes_each)) {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(count, bytes_each, &bytes)) bytes = UINT64_MAX;
    return refused(bytes, "planning", ENOMEM);
  }
  const SegmentPlan plan = plan_segments(bytes_each, segment_bytes_max);
  const std::uint64_t segments_more = (count + plan.blocks_each - 1) / plan.blocks_each;
  if (segments_.size() + segments_more > limits::segments_max) {
    return Error{ErrorCode::memory,
                 fmt::format("pinned memory: {} blocks of {} need more than {} segments: lower "
                             "--cache",
                             count, format_bytes(bytes_each), limits::segments_max)};
  }
  PinnedMemory added;  // unmapped again when a later segment fails
  blocks.reserve(count);
  for (std::uint64_t left = count; left > 0;) {
    const std::uint64_t here = std::min(left, plan.blocks_each);
    MILLRACE_ASSIGN(const std::span<std::byte> segment, map_segment(plan.segment_bytes(here)));
    added.segments_.push_back(segment);
    const auto buffer = static_cast<std::int32_t>(segments_.size() + added.segments_.size() - 1);
    for (std::uint64_t i = 0; i < here; ++i) {
      blocks.push_back({segment.data() + i * plan.block_bytes, plan.block_bytes, buffer});
    }
    left -= here;
  }
  MILLRACE_TRY(populate(added.segments_));
  const auto first = static_cast<std::uint32_t>(segments_.size());
  segments_.insert(segments_.end(), added.segments_.begin(), added.segments_.end());
  states_.resize(segments_.size());
  added.segments_.clear();
  for (std::uint32_t segment = first; segment < segments_.size(); ++segment) lock(segment);
  return blocks;
}

// What does not fit under the limit stays unlocked; a later, smaller segment may still fit.
void PinnedMemory::lock(std::uint32_t segment) {
  const std::span<std::byte> memory = segments_[segment];
  if (mlock(memory.data(), memory.size()) == 0) {
    states_[segment].locked = true;
    locked_bytes_ += memory.size();
    if (unlocked_reason_.empty()) return;
  }
  const int failure = states_[segment].locked ? ENOMEM : errno;  // EAGAIN, ENOMEM, EPERM
  std::uint64_t total = 0;
  for (const std::span<std::byte> any : segments_) total += any.size();
  unlocked_reason_ = unlocked_text(failure, total);
}

Status PinnedMemory::give_back(std::uint32_t segment) {
  MILLRACE_CHECK(segment < segments_.size() && !states_[segment].given_back);
  const std::span<std::byte> memory = segments_[segment];
  if (states_[segment].locked) munlock(memory.data(), memory.size());  // else the next is refused
  if (madvise(memory.data(), memory.size(), MADV_DONTNEED) != 0) {
    const int failure = errno;
    if (states_[segment].locked) mlock(memory.data(), memory.size());
    return refused(memory.size(), "giving back", failure);
  }
  if (states_[segment].locked) locked_bytes_ -= memory.size();
  states_[segment] = {.locked = false, .given_back = true};
  mprotect(memory.data(), memory.size(), PROT_NONE);  // so that a stray access is noticed
  return {};
}

Status PinnedMemory::take_again(std::uint32_t segment) {
  MILLRACE_CHECK(segment < segments_.size() && states_[segment].given_back);
  const std::span<std::byte> memory = segments_[segment];
  if (mprotect(memory.data(), memory.size(), PROT_READ | PROT_WRITE) != 0)
    return refused(memory.size(), "mapping", errno);
  if (const Status populated = populate({&memory, 1}); !populated) {
    madvise(memory.data(), memory.size(), MADV_DONTNEED);
    mprotect(memory.data(), memory.size(), PROT_NONE);
    return populated.error();
  }
  states_[segment].given_back = false;
  lock(segment);
  return {};
}

std::uint64_t PinnedMemory::mapped_bytes(std::uint64_t count, std::uint64_t bytes_each,
                                         std::uint64_t segment_bytes_max) noexcept {
  if (count == 0 || bytes_each == 0) return 0;
  if (absurd(count, bytes_each)) return UINT64_MAX;
  const SegmentPlan plan = plan_segments(bytes_each, segment_bytes_max);
  const std::uint64_t rest = count % plan.blocks_each;
  return count / plan.blocks_each * plan.segment_bytes(plan.blocks_each) +
         (rest == 0 ? 0 : plan.segment_bytes(rest));
}

PinnedMemoryStats PinnedMemory::stats() const {
  PinnedMemoryStats stats;
  for (std::size_t i = 0; i < segments_.size(); ++i)
    if (!states_[i].given_back) stats.bytes += segments_[i].size();
  stats.huge_bytes = huge_bytes_of(segments_);
  stats.locked_bytes = locked_bytes_;
  stats.unlocked_reason = unlocked_reason_;
  return stats;
}

}  // namespace millrace
