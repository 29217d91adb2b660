// check_pack(): every digest, at the speed of the drive: several readers, each an expert ahead.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "io/file.h"
#include "runtime/base/hash.h"
#include "runtime/direct_read.h"
#include "runtime/graph/workers.h"
#include "runtime/pack.h"

namespace millrace {

namespace {

constexpr unsigned readers = 4;

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
    const auto begin = std::chrono::steady_clock::now();
    const Status worked =
        run_workers({.name = "mr-verify", .doing = "verifying", .wanted = readers}, stop_,
                    [this](unsigned worker) { work(worker == 0); });
    progress_.clear();
    MILLRACE_TRY(worked);
    if (!error_.what.empty()) return std::move(error_);
    if (cancel_.load()) return Error{ErrorCode::cancelled, "interrupted"};
    made_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::sort(made_.damaged.begin(), made_.damaged.end(), [](const auto& a, const auto& b) {
      return std::pair(a.key.layer, a.key.expert) < std::pair(b.key.layer, b.key.expert);
    });
    return std::move(made_);
  }

 private:
  const PackedExpert& at(ExpertKey key) const { return index_.layers[key.layer][key.expert]; }

  void work(bool shows) {
    ReadBuffer buffer;
    while (!stop_.load() && !cancel_.load()) {
      const std::size_t number = next_.fetch_add(1);
      if (number >= keys_.size()) return;
      check(keys_[number], buffer);
      if (shows)
        progress_.show("verifying",
                       static_cast<double>(number + 1) / static_cast<double>(keys_.size()),
                       fmt::format("{} of {} experts", number + 1, keys_.size()));
    }
  }

  void check(ExpertKey key, ReadBuffer& buffer) {
    for (unsigned i = 0; i < 3; ++i) {
      const PackedSlice& slice = at(key).slices[i];
      const auto data = read_stretch(file_, slice.offset_bytes, slice.bytes, buffer);
      if (!data) return fail(key, data.error());
      const bool damaged = hash64(*data, slice.bytes) != slice.digest;
      const std::lock_guard lock(mutex_);
      made_.bytes += slice.bytes;
      if (damaged) made_.damaged.push_back({key, i});
    }
    const std::lock_guard lock(mutex_);
    ++made_.experts;
  }

  void fail(ExpertKey key, const Error& error) {
    const std::lock_guard lock(mutex_);
    if (error_.what.empty())
      error_ = Error{error.code,
                     fmt::format("layer {}, expert {}: {}", key.layer, key.expert, error.what)};
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
