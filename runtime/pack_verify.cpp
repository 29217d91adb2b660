// check_pack(): every digest, at the speed of the drive: several readers, each an expert ahead.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "io/file.h"
#include "runtime/base/hash.h"
#include "runtime/base/units.h"
#include "runtime/pack.h"

namespace millrace {

namespace {

constexpr unsigned readers = 4;

struct Free {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }
};

class Check {
 public:
  Check(const File& file, const PackIndex& index, ProgressLine& progress,
        const std::atomic<bool>& cancel)
      : file_(file), index_(index), progress_(progress), cancel_(cancel) {
    for (LayerIndex layer = 0; layer < index.layers.size(); ++layer)
      for (ExpertIndex expert = 0; expert < index.layers[layer].size(); ++expert)
        keys_.push_back({layer, expert});
    // In the order of the file.
    std::sort(keys_.begin(), keys_.end(), [&](ExpertKey a, ExpertKey b) {
      return at(a).slices[0].offset_bytes < at(b).slices[0].offset_bytes;
    });
  }

  Result<PackCheck> run() {
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < readers; ++i) threads.emplace_back([this] { work(false); });
    work(true);
    for (std::thread& thread : threads) thread.join();
    progress_.clear();
    if (!error_.what.empty()) return std::move(error_);
    if (cancel_.load()) return Error{ErrorCode::cancelled, "interrupted"};
    std::sort(made_.damaged.begin(), made_.damaged.end(), [](const auto& a, const auto& b) {
      return std::pair(a.key.layer, a.key.expert) < std::pair(b.key.layer, b.key.expert);
    });
    return std::move(made_);
  }

 private:
  const PackedExpert& at(ExpertKey key) const { return index_.layers[key.layer][key.expert]; }

  void work(bool shows) {
    while (!stop_.load() && !cancel_.load()) {
      const std::size_t number = next_.fetch_add(1);
      if (number >= keys_.size()) return;
      check(keys_[number]);
      if (shows)
        progress_.show("verifying",
                       static_cast<double>(number + 1) / static_cast<double>(keys_.size()),
                       fmt::format("{} of {} experts", number + 1, keys_.size()));
    }
  }

  void check(ExpertKey key) {
    for (unsigned i = 0; i < 3; ++i) {
      const PackedSlice& slice = at(key).slices[i];
      const std::uint64_t bytes = round_up(slice.bytes, PackIndex::alignment);
      const std::unique_ptr<std::byte[], Free> buffer(
          static_cast<std::byte*>(std::aligned_alloc(PackIndex::alignment, bytes)));
      MILLRACE_CHECK(buffer != nullptr);
      if (const int failed = read(slice.offset_bytes, buffer.get(), bytes, slice.bytes))
        return fail(key, failed);
      const bool damaged = hash64(buffer.get(), slice.bytes) != slice.digest;
      const std::lock_guard lock(mutex_);
      made_.bytes += slice.bytes;
      if (damaged) made_.damaged.push_back({key, i});
    }
    const std::lock_guard lock(mutex_);
    ++made_.experts;
  }

  // Whole blocks, as direct reads want them; the last may end with the file. 0 or an errno.
  int read(std::uint64_t offset, std::byte* target, std::uint64_t bytes, std::uint64_t needed) {
    std::uint64_t done = 0;
    while (done < needed) {
      const ssize_t got =
          pread(file_.fd(), target + done, bytes - done, static_cast<off_t>(offset + done));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return errno;
      if (got == 0) return EIO;
      done += static_cast<std::uint64_t>(got);
    }
    return 0;
  }

  void fail(ExpertKey key, int error) {
    const std::lock_guard lock(mutex_);
    if (error_.what.empty())
      error_.what = fmt::format("{}: layer {}, expert {}: {}", file_.path(), key.layer, key.expert,
                                std::strerror(error));
    stop_.store(true);
  }

  const File& file_;
  const PackIndex& index_;
  ProgressLine& progress_;
  const std::atomic<bool>& cancel_;
  std::vector<ExpertKey> keys_;
  std::atomic<std::size_t> next_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  PackCheck made_;
  Error error_{ErrorCode::io, {}};
};

}  // namespace

Result<PackCheck> check_pack(const std::string& path, ProgressLine& progress,
                             const std::atomic<bool>& cancel) {
  MILLRACE_ASSIGN(const File file, File::open(path, DirectMode::automatic));
  MILLRACE_ASSIGN(const PackIndex index, read_pack(file, true));
  return Check(file, index, progress, cancel).run();
}

}  // namespace millrace
