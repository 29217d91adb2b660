#include "runtime/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "io/file.h"
#include "runtime/base/hash.h"
#include "runtime/base/units.h"
#include "runtime/direct_read.h"
#include "runtime/graph/workers.h"
#include "runtime/output_file.h"

namespace millrace {

namespace {

std::array<const MatrixExtent*, 3> slices_of(const ExpertExtent& extent) {
  return {&extent.gate, &extent.up, &extent.down};
}

Result<std::vector<File>> open_files(const ModelSpec& spec, DirectMode mode) {
  std::vector<File> files;
  for (const std::string& path : spec.files) {
    MILLRACE_ASSIGN(File file, File::open(path, mode));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

Result<std::uint64_t> model_identity(const ModelSpec& spec) {
  MILLRACE_ASSIGN(const std::vector<File> files, open_files(spec, DirectMode::off));
  StreamHash hash;
  const auto number = [&](std::uint64_t value) { hash.update(&value, sizeof value); };
  for (LayerIndex layer = 0; layer < spec.experts.layers(); ++layer) {
    for (ExpertIndex expert = 0; expert < spec.experts.experts(layer); ++expert)
      for (const MatrixExtent* slice : slices_of(spec.experts.at({layer, expert}))) {
        if (slice->scales.rows > 0 || slice->row_step > 1 || slice->by_inputs)
          return Error{
              ErrorCode::unsupported,
              fmt::format("{}: layer {}, expert {}: scales apart from their codes, or rows "
                          "of gate and up by turns, or columns together: pools of such "
                          "experts are not packed",
                          spec.files[slice->file], layer, expert)};
        number(static_cast<std::uint64_t>(slice->type));
        number(slice->rows);
        number(slice->columns);
      }
    const auto& router = spec.layers[layer].matrix(MatrixRole::router);
    if (!router) continue;
    std::vector<std::byte> bytes(router->bytes());
    MILLRACE_TRY(
        files[router->file].read_exactly(router->offset_bytes, bytes.data(), bytes.size()));
    hash.update(bytes.data(), bytes.size());
  }
  return hash.value();
}

std::vector<ExpertKey> layer_order(const ExpertExtents& extents) {
  std::vector<ExpertKey> order;
  for (LayerIndex layer = 0; layer < extents.layers(); ++layer)
    for (ExpertIndex expert = 0; expert < extents.experts(layer); ++expert)
      order.push_back({layer, expert});
  return order;
}

Result<std::vector<ExpertKey>> traced_order(const ExpertExtents& extents,
                                            const RoutingRecord& record) {
  std::vector<std::vector<std::uint64_t>> asked(extents.layers());
  for (LayerIndex layer = 0; layer < extents.layers(); ++layer)
    asked[layer].resize(extents.experts(layer));
  for (const RoutingRow& row : record.rows)
    for (const ExpertIndex expert : record.experts_of(row)) {
      if (row.layer >= asked.size() || expert >= asked[row.layer].size())
        return Error{ErrorCode::usage,
                     fmt::format("--order: the trace is of another model: it has expert {} in "
                                 "layer {}",
                                 expert, row.layer)};
      ++asked[row.layer][expert];
    }
  std::vector<ExpertKey> order = layer_order(extents);
  std::stable_sort(order.begin(), order.end(), [&](ExpertKey a, ExpertKey b) {
    if (a.layer != b.layer) return a.layer < b.layer;
    return asked[a.layer][a.expert] > asked[b.layer][b.expert];
  });
  return order;
}

namespace {

// One packing. Several threads take one expert after the other: while some read, others write. The
// caller's thread saves the table from time to time, so that a kill costs no more than what was
// packed since.
class Packing {
 public:
  Packing(const ModelSpec& spec, const std::vector<ExpertKey>& order, PackIndex index,
          std::vector<File> sources, OutputFile file)
      : spec_(spec),
        order_(order),
        index_(std::move(index)),
        sources_(std::move(sources)),
        file_(std::move(file)),
        done_(order.size(), false),
        next_(index_.packed),
        ready_(index_.packed) {}

  Status run(ProgressLine& progress, const std::atomic<bool>& cancel) {
    MILLRACE_TRY(save(false));
    constexpr unsigned packers = 4;
    Status watched;
    const Status worked =
        run_workers({.name = "mr-pack", .doing = "packing", .wanted = packers + 1, .least = 2},
                    stop_, [&](unsigned worker) {
                      if (worker > 0) return work();
                      watched = watch(progress, cancel);
                      stop_.store(true);
                    });
    // What is there is kept, whatever happened.
    const Status saved = save(worked && watched && ready_ == order_.size());
    MILLRACE_TRY(worked);
    MILLRACE_TRY(watched);
    MILLRACE_TRY(saved);
    return file_.finish();
  }

 private:
  // Until all is packed, one expert failed, or the user has enough.
  Status watch(ProgressLine& progress, const std::atomic<bool>& cancel) {
    constexpr std::uint64_t table_every_bytes = 1024 * MiB;
    constexpr auto look_every = std::chrono::milliseconds(100);
    std::unique_lock lock(mutex_);
    while (ready_ < order_.size()) {
      changed_.wait_for(lock, look_every);
      if (!error_.what.empty()) return error_;
      if (stop_.load()) return {};  // one of the others threw, which run() tells
      if (cancel.load()) return Error{ErrorCode::cancelled, "interrupted"};
      progress.show("packing", static_cast<double>(ready_) / static_cast<double>(order_.size()),
                    fmt::format("{} of {} experts, {} in all", ready_, order_.size(),
                                format_bytes(index_.file_bytes)));
      if (unsaved_bytes_ < table_every_bytes) continue;
      unsaved_bytes_ = 0;
      lock.unlock();
      MILLRACE_TRY(save(false));
      lock.lock();
    }
    return {};
  }

  void work() {
    ReadBuffer source, packed;
    while (!stop_.load()) {
      const std::size_t number = next_.fetch_add(1);
      if (number >= order_.size()) return;
      const Status done = pack(order_[number], source, packed);
      const std::lock_guard lock(mutex_);
      if (!done) {
        if (error_.what.empty()) error_ = done.error();
        stop_.store(true);
      }
      done_[number] = done.has_value();
      while (ready_ < order_.size() && done_[ready_]) ++ready_;
      changed_.notify_one();
    }
  }

  Status pack(ExpertKey key, ReadBuffer& source, ReadBuffer& made) {
    PackedExpert packed = index_.layers[key.layer][key.expert];  // nobody else writes this one
    const auto slices = slices_of(spec_.experts.at(key));
    const std::uint64_t begin = packed.slices[0].offset_bytes;
    const std::uint64_t end =
        packed.slices[2].offset_bytes + round_up(packed.slices[2].bytes, PackIndex::alignment);
    MILLRACE_ASSIGN(std::byte* const buffer, made.room(end - begin));
    for (std::size_t i = 0; i < slices.size(); ++i) {
      const std::uint64_t bytes = slices[i]->bytes();
      MILLRACE_ASSIGN(const std::byte* data, read_stretch(sources_[slices[i]->file],
                                                          slices[i]->offset_bytes, bytes, source));
      std::byte* const at = buffer + (packed.slices[i].offset_bytes - begin);
      std::memcpy(at, data, bytes);
      std::memset(at + bytes, 0, round_up(bytes, PackIndex::alignment) - bytes);
      packed.slices[i].digest = hash64(at, bytes);
    }
    MILLRACE_TRY(file_.write(begin, buffer, end - begin));
    const std::lock_guard lock(mutex_);
    index_.layers[key.layer][key.expert] = packed;
    unsaved_bytes_ += end - begin;
    return {};
  }

  // The data first: the table must not tell of more than there is.
  Status save(bool complete) {
    std::vector<std::byte> bytes;
    {
      const std::lock_guard lock(mutex_);
      index_.packed = ready_;
      bytes = index_.encode(complete);
    }
    MILLRACE_TRY(file_.sync());
    MILLRACE_ASSIGN(std::byte* const buffer, table_.room(bytes.size()));
    std::memcpy(buffer, bytes.data(), bytes.size());
    MILLRACE_TRY(file_.write(0, buffer, bytes.size()));
    return file_.sync();
  }

  const ModelSpec& spec_;
  const std::vector<ExpertKey>& order_;
  PackIndex index_;  // digests and count under mutex_
  const std::vector<File> sources_;
  OutputFile file_;
  ReadBuffer table_;
  std::vector<bool> done_;  // by place in the order; this and the following under mutex_
  std::atomic<std::size_t> next_;
  std::size_t ready_;  // experts in front that are all written
  std::uint64_t unsaved_bytes_ = 0;
  Error error_{ErrorCode::io, {}};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::condition_variable changed_;
};

bool same_plan(const PackIndex& a, const PackIndex& b) {
  if (a.identity != b.identity || a.file_bytes != b.file_bytes ||
      a.layers.size() != b.layers.size())
    return false;
  for (std::size_t layer = 0; layer < a.layers.size(); ++layer) {
    if (a.layers[layer].size() != b.layers[layer].size()) return false;
    for (std::size_t expert = 0; expert < a.layers[layer].size(); ++expert)
      for (std::size_t i = 0; i < 3; ++i)
        if (a.layers[layer][expert].slices[i].offset_bytes !=
            b.layers[layer][expert].slices[i].offset_bytes)
          return false;
  }
  return true;
}

// What an earlier run has left, if it was about the same.
std::optional<PackIndex> left_behind(const std::string& part_path, const PackIndex& plan) {
  const auto file = File::open(part_path, DirectMode::off);
  if (!file) return std::nullopt;
  const auto index = read_pack(*file, false);
  if (!index || !same_plan(*index, plan)) return std::nullopt;
  return *index;
}

}  // namespace

Result<PackResult> pack_model(const ModelSpec& spec, const std::vector<ExpertKey>& order,
                              const std::string& path, ProgressLine& progress,
                              const std::atomic<bool>& cancel) {
  if (order.empty())
    return Error{ErrorCode::usage,
                 fmt::format("{}: a dense model has no experts to pack", spec.files.front())};
  MILLRACE_ASSIGN(const std::uint64_t identity, model_identity(spec));
  PackIndex index = plan_pack(spec.experts, order, identity);
  const PackResult planned{index.file_bytes, order.size(), 0};
  MILLRACE_ASSIGN(std::vector<File> sources, open_files(spec, DirectMode::automatic));
  MILLRACE_ASSIGN(OutputFile file,
                  OutputFile::create(path, index.file_bytes, OutputFile::Existing::continued));
  file.keep_unfinished();
  const auto before = left_behind(OutputFile::part_path(path), index);  // nobody else writes it now
  if (before) index = *before;
  MILLRACE_TRY(before ? file.reserve() : file.restart());
  PackResult result = planned;
  result.resumed = index.packed;
  Packing packing(spec, order, std::move(index), std::move(sources), std::move(file));
  const Status done = packing.run(progress, cancel);
  progress.clear();
  if (!done) return done.error();
  return result;
}

Result<PackIndex> use_pack(ModelSpec& spec, const std::string& path) {
  MILLRACE_ASSIGN(const File file, File::open(path, DirectMode::off));
  MILLRACE_ASSIGN(PackIndex index, read_pack(file, true));
  MILLRACE_ASSIGN(const std::uint64_t identity, model_identity(spec));
  const PackIndex plan = plan_pack(spec.experts, layer_order(spec.experts), identity);
  const auto sizes = [](const PackIndex& of) {
    std::vector<std::size_t> list;
    for (const auto& layer : of.layers) list.push_back(layer.size());
    return list;
  };
  if (index.identity != identity || sizes(index) != sizes(plan))
    return Error{ErrorCode::usage, fmt::format("--pool {}: packed from another model than {}", path,
                                               spec.files.front())};
  std::vector<std::vector<ExpertExtent>> layers(spec.experts.layers());
  for (LayerIndex layer = 0; layer < spec.experts.layers(); ++layer)
    for (ExpertIndex expert = 0; expert < spec.experts.experts(layer); ++expert) {
      ExpertExtent extent = spec.experts.at({layer, expert});
      const PackedExpert& packed = index.layers[layer][expert];
      MatrixExtent* const slices[3] = {&extent.gate, &extent.up, &extent.down};
      for (std::size_t i = 0; i < 3; ++i) {
        if (slices[i]->bytes() != packed.slices[i].bytes)
          return Error{ErrorCode::format,
                       fmt::format("{}: layer {}, expert {}: {} bytes, the model has {}", path,
                                   layer, expert, packed.slices[i].bytes, slices[i]->bytes())};
        slices[i]->file = static_cast<std::uint32_t>(spec.files.size());
        slices[i]->offset_bytes = packed.slices[i].offset_bytes;
      }
      layers[layer].push_back(extent);
    }
  spec.experts = ExpertExtents(std::move(layers));
  spec.files.push_back(path);
  return index;
}

}  // namespace millrace
