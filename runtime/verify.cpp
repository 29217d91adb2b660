#include "runtime/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "io/file.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"
#include "runtime/direct_read.h"
#include "runtime/graph/workers.h"

namespace millrace {

namespace {

// More than cores: some read while others look.
constexpr unsigned workers = 6;
constexpr std::uint64_t piece_bytes = 4 * MiB;
constexpr std::size_t values_at_once = 8192;  // decoded: they stay in a core's cache

constexpr std::size_t no_tensor = ~std::size_t{0};

// Bytes of a file that belong together; cut into pieces of whole blocks.
struct Stretch {
  std::uint32_t file = 0;
  std::uint64_t offset = 0, bytes = 0;
  std::size_t tensor = no_tensor;
  ScaleType scales = ScaleType::none;  // these are scales
};

// All bytes of the files: tensors, their scales, and what lies between them.
std::vector<Stretch> stretches_of(const Checkpoint& checkpoint, const std::vector<File>& files) {
  std::vector<Stretch> list;
  const auto& tensors = checkpoint.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& tensor = tensors[i];
    list.push_back({tensor.file, tensor.offset_bytes, tensor.bytes, i, ScaleType::none});
    const ScaleExtent& scales = tensor.scales;
    if (scales.rows > 0)
      list.push_back({scales.file, scales.offset_bytes, scales.bytes(), i, scales.type});
    if (tensor.zeros.rows > 0)
      list.push_back(
          {tensor.zeros.file, tensor.zeros.offset_bytes, tensor.zeros.bytes(), i, ScaleType::none});
  }
  std::sort(list.begin(), list.end(), [](const Stretch& a, const Stretch& b) {
    return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
  });
  std::vector<Stretch> holes;
  std::size_t next = 0;
  for (std::uint32_t file = 0; file < files.size(); ++file) {
    std::uint64_t at = 0;
    const auto hole_until = [&](std::uint64_t end) {
      if (end > at) holes.push_back({file, at, end - at, no_tensor, ScaleType::none});
    };
    for (; next < list.size() && list[next].file == file; ++next) {
      hole_until(list[next].offset);
      at = std::max(at, list[next].offset + list[next].bytes);
    }
    hole_until(files[file].size_bytes());
  }
  list.insert(list.end(), holes.begin(), holes.end());
  std::sort(list.begin(), list.end(), [](const Stretch& a, const Stretch& b) {
    return std::pair(a.file, a.offset) < std::pair(b.file, b.offset);
  });
  return list;
}

// What is found in a piece.
struct Found {
  std::uint64_t count = 0, first = 0;
  void add(std::uint64_t number) {
    if (count++ == 0) first = number;
  }
};

class WeightChecker {
 public:
  WeightChecker(const Checkpoint& checkpoint, const KernelTable& kernels, std::vector<File> files,
                ProgressLine& progress, const std::atomic<bool>& cancel)
      : tensors_(checkpoint.tensors()),
        kernels_(kernels),
        files_(std::move(files)),
        progress_(progress),
        cancel_(cancel) {
    for (const Stretch& stretch : stretches_of(checkpoint, files_)) cut(stretch);
  }

  Result<WeightCheck> run() {
    const auto begin = std::chrono::steady_clock::now();
    const Status worked =
        run_workers({.name = "mr-verify", .doing = "verifying", .wanted = workers}, stop_,
                    [this](unsigned worker) { work(worker == 0); });
    progress_.clear();
    MILLRACE_TRY(worked);
    if (no_memory_) return *std::move(no_memory_);
    if (cancel_.load()) return Error{ErrorCode::cancelled, "interrupted"};
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
    made_.seconds = time.count();
    for (const auto& [tensor, found] : found_)
      made_.bad.push_back({printable(tensors_[tensor].name), found.count, found.first});
    return std::move(made_);
  }

 private:
  void cut(const Stretch& whole) {
    all_bytes_ += whole.bytes;
    std::uint64_t unit = piece_bytes;
    if (whole.tensor != no_tensor) {
      const std::uint64_t block = block_bytes(whole);
      unit = std::max(block, piece_bytes / block * block);
    }
    for (std::uint64_t at = 0; at < whole.bytes; at += unit) {
      Stretch piece = whole;
      piece.offset += at;
      piece.bytes = std::min(unit, whole.bytes - at);
      pieces_.push_back(piece);
      before_.push_back(at);
    }
  }

  std::uint64_t block_bytes(const Stretch& stretch) const {
    if (stretch.scales != ScaleType::none) return scale_bytes(stretch.scales);
    return dtype_info(tensors_[stretch.tensor].type).block_bytes;
  }

  void work(bool shows) {
    ReadBuffer buffer;
    while (!stop_.load() && !cancel_.load()) {
      const std::size_t number = next_.fetch_add(1);
      if (number >= pieces_.size()) return;
      const Stretch& piece = pieces_[number];
      const auto data = read_stretch(files_[piece.file], piece.offset, piece.bytes, buffer);
      if (!data && data.error().code == ErrorCode::memory) return give_up(data.error());
      Found found;
      bool looked = true;
      if (data) looked = look(piece, *data, before_[number], found);
      note(piece, data ? std::string() : data.error().what, looked, found);
      if (shows)
        progress_.show("verifying",
                       static_cast<double>(made_bytes_.load()) /
                           static_cast<double>(std::max<std::uint64_t>(1, all_bytes_)),
                       format_bytes(all_bytes_));
    }
  }

  void give_up(const Error& error) {
    const std::lock_guard lock(mutex_);
    no_memory_ = error;
    stop_.store(true);
  }

  void note(const Stretch& piece, const std::string& failure, bool looked, const Found& found) {
    made_bytes_.fetch_add(piece.bytes);
    const std::lock_guard lock(mutex_);
    constexpr std::size_t told_max = 100;
    if (!failure.empty() && made_.unreadable.size() < told_max) made_.unreadable.push_back(failure);
    if (failure.empty()) made_.bytes += piece.bytes;
    if (!looked) made_.unchecked += piece.bytes;
    if (found.count == 0) return;
    Found& all = found_[piece.tensor];
    all.first = all.count == 0 ? found.first : std::min(all.first, found.first);
    all.count += found.count;
  }

  // False if there is nothing to tell about these bytes. `before`: bytes of the tensor in front.
  bool look(const Stretch& piece, const std::byte* data, std::uint64_t before, Found& found) const {
    if (piece.tensor == no_tensor) return true;
    DType type = tensors_[piece.tensor].type;
    if (piece.scales == ScaleType::f32) type = DType::f32;
    if (piece.scales == ScaleType::bf16) type = DType::bf16;
    if (piece.scales == ScaleType::f16) type = DType::f16;
    if (piece.scales == ScaleType::e8m0) {
      codes(data, piece.bytes, before, 0xFF, 0xFF, found);
    } else if (type == DType::f8_e4m3) {
      codes(data, piece.bytes, before, 0x7F, 0x7F, found);
    } else if (type == DType::fp4 || type == DType::awq) {
      return true;  // all codes are numbers
    } else if (kernels_.decode_row[static_cast<std::size_t>(type)] == nullptr) {
      return false;
    } else {
      values(type, data, piece.bytes, before, found);
    }
    return true;
  }

  // Bytes whose masked bits mean NaN.
  static void codes(const std::byte* data, std::uint64_t bytes, std::uint64_t before, unsigned mask,
                    unsigned nan, Found& found) {
    for (std::uint64_t i = 0; i < bytes; ++i)
      if ((static_cast<unsigned>(data[i]) & mask) == nan) found.add(before + i);
  }

  void values(DType type, const std::byte* data, std::uint64_t bytes, std::uint64_t before,
              Found& found) const {
    const DTypeInfo& info = dtype_info(type);
    const std::uint64_t blocks_at_once = values_at_once / info.block_elems;
    float decoded[values_at_once];
    for (std::uint64_t at = 0; at < bytes;) {
      const std::uint64_t blocks = std::min(blocks_at_once, (bytes - at) / info.block_bytes);
      const std::size_t count = blocks * info.block_elems;
      kernels_.decode_row[static_cast<std::size_t>(type)](data + at, count, decoded);
      const std::uint64_t number = (before + at) / info.block_bytes * info.block_elems;
      if (!kernels_.all_finite(decoded, count))
        for (std::size_t i = 0; i < count; ++i)
          if (!std::isfinite(decoded[i])) found.add(number + i);
      at += blocks * info.block_bytes;
    }
  }

  const std::vector<TensorInfo>& tensors_;
  const KernelTable& kernels_;
  const std::vector<File> files_;
  ProgressLine& progress_;
  const std::atomic<bool>& cancel_;
  std::vector<Stretch> pieces_;
  std::vector<std::uint64_t> before_;  // bytes of its tensor in front of each piece
  std::uint64_t all_bytes_ = 0;
  std::atomic<std::size_t> next_{0};
  std::atomic<std::uint64_t> made_bytes_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::optional<Error> no_memory_;
  WeightCheck made_;
  std::map<std::size_t, Found> found_;  // by tensor
};

}  // namespace

Result<WeightCheck> check_weights(const Checkpoint& checkpoint, const KernelTable& kernels,
                                  ProgressLine& progress, const std::atomic<bool>& cancel) {
  std::vector<File> files;
  for (const std::string& path : checkpoint.files()) {
    MILLRACE_ASSIGN(File file, File::open(path, DirectMode::automatic));
    files.push_back(std::move(file));
  }
  return WeightChecker(checkpoint, kernels, std::move(files), progress, cancel).run();
}

}  // namespace millrace
