// TrunkStore: the model's trunk in memory. The tables around the layers (embedding, head, norms)
// and the first layers are pinned; the layers behind them, if the budget is too small, stream
// through a ring of units that is read ahead.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "io/file.h"
#include "io/pinned_memory.h"
#include "io/read_scheduler.h"
#include "kernels/kernel_table.h"
#include "model/hash_routes.h"
#include "model/model_spec.h"
#include "model/weights.h"
#include "runtime/base/activity.h"
#include "runtime/base/function_ref.h"
#include "runtime/base/result.h"

namespace millrace {

inline constexpr std::uint32_t trunk_ring_units = 2;  // one in use, one being read

// How the trunk is laid out; a pure function of model, files and budget.
struct TrunkPlan {
  std::uint32_t pinned_layers = 0;            // layers 0 .. pinned_layers-1 stay; the others stream
  std::uint64_t tables_bytes = 0;             // embedding and head
  std::uint64_t pinned_bytes = 0;             // pinned layers
  std::uint64_t ring_bytes = 0;               // 0 when all layers are pinned
  std::uint64_t vector_bytes = 0;             // norms and biases as float32, hash routes
  std::uint64_t streamed_bytes_per_step = 0;  // read for each step through the layers
  std::uint64_t smallest_bytes = 0;           // the smallest budget that works
  std::uint64_t total_bytes() const noexcept {
    return tables_bytes + pinned_bytes + ring_bytes + vector_bytes;
  }
};

// As many leading layers as `budget_bytes` holds. `memory` error, naming the smallest --trunk that
// works, when even the tables and the ring do not fit. block_bytes: per file.
Result<TrunkPlan> plan_trunk(const ModelSpec& spec, std::span<const std::uint32_t> block_bytes,
                             std::uint64_t budget_bytes);

// Owned by the engine. create() and load() at start, then acquire/release by the one thread that
// walks the layers.
class TrunkStore {
 public:
  // Allocates from `memory` (which must outlive the store) as the plan says.
  static Result<std::unique_ptr<TrunkStore>> create(const ModelSpec& spec, const TrunkPlan& plan,
                                                    std::span<const std::uint32_t> block_bytes,
                                                    PinnedMemory& memory);
  ~TrunkStore();
  TrunkStore(const TrunkStore&) = delete;
  TrunkStore& operator=(const TrunkStore&) = delete;

  // Reads tables, vectors and pinned layers; progress(bytes done, bytes in all) is called from this
  // thread. `files`: those of the spec, then others that the scheduler reads from; scheduler and
  // files must outlive the store.
  Status load(ReadScheduler& scheduler, std::span<const File> files, const KernelTable& kernels,
              ActivityClock& activity, FunctionRef<bool(std::uint64_t, std::uint64_t)> progress);

  // Weights of a layer, valid until release(layer). Waits for a streamed layer (counted as a
  // demanded read). Layers are walked in ascending order; starting again from 0 at any time is
  // fine.
  Result<const LayerWeights*> acquire(LayerIndex layer);
  void release(LayerIndex layer) noexcept;
  // Weights of a layer that is always in memory; null for a streamed one. After load(), any thread.
  const LayerWeights* pinned(LayerIndex layer) const noexcept {
    return layer < plan_.pinned_layers ? &weights_[layer] : nullptr;
  }

  const Matrix& embedding() const noexcept { return embedding_; }
  const Matrix& head() const noexcept { return head_; }
  const float* output_norm() const noexcept { return output_norm_.data(); }
  std::span<const float> rope_factors() const noexcept { return rope_factors_; }  // empty: all 1
  const HashRoutes& hash_routes() const noexcept { return hash_routes_; }
  // Of the streams in front of the head; null where there is one stream.
  struct OutputStreamWeights {
    const float* weights = nullptr;
    const float* base = nullptr;
    const float* scale = nullptr;
  };
  OutputStreamWeights output_streams() const noexcept {
    return {output_streams_[0].data(), output_streams_[1].data(), output_streams_[2].data()};
  }
  std::uint64_t small_bytes_read() const noexcept {
    return small_bytes_read_;
  }  // vectors, read outside the scheduler

 private:
  enum class Part : std::uint8_t { codes, scales, zeros };
  // The place of a matrix, or of its scales or zeros, inside a unit: the block-rounded window in
  // the file and where it goes.
  struct Window {
    std::size_t role;
    std::uint32_t file;
    std::uint64_t position;      // of the window in the unit
    std::uint64_t read_offset;   // in the file, rounded down
    std::uint64_t read_bytes;    // rounded up
    std::uint64_t skip;          // weights start at position + skip
    std::uint64_t needed_bytes;  // of the window, up to the end of the weights
    Part part = Part::codes;     // others follow the window of their matrix's codes
  };
  struct Unit;
  friend Result<TrunkPlan> plan_trunk(const ModelSpec&, std::span<const std::uint32_t>,
                                      std::uint64_t);

  TrunkStore() = default;
  static std::vector<Window> layer_windows(const LayerSpec& layer,
                                           std::span<const std::uint32_t> block_bytes);
  static std::uint64_t windows_bytes(const std::vector<Window>& windows);
  static Window window(std::uint32_t file, std::uint64_t offset, std::uint64_t bytes,
                       std::uint32_t block, std::uint64_t position);
  static Window table_window(const MatrixExtent& extent, std::uint32_t block);
  Status load_vectors(std::span<const File> files, const KernelTable& kernels);
  void start_unit(Unit& unit, LayerIndex layer);
  Unit* find_unit(LayerIndex layer) noexcept;
  Unit* free_unit() noexcept;
  void read_ahead_locked(LayerIndex after);
  void order_columns(Unit& unit);
  static void range_done(RangeRead& range, int status);
  Error read_error(const Unit& unit) const;

  const ModelSpec* spec_ = nullptr;
  TrunkPlan plan_;
  std::vector<std::vector<Window>> windows_;   // per layer
  std::vector<LayerWeights> weights_;          // per layer; streamed ones are filled by acquire
  std::vector<std::unique_ptr<Unit>> pinned_;  // tables first, then the layers
  std::vector<std::unique_ptr<Unit>> ring_;
  std::vector<std::vector<float>> vectors_;  // owners of the float32 copies
  std::vector<std::byte> spare_row_;         // of the widest matrix whose columns are put in order
  std::vector<float> output_norm_, rope_factors_;
  std::array<std::vector<float>, 3> output_streams_;  // weights, base, scale
  HashRoutes hash_routes_;
  Matrix embedding_, head_;
  std::uint64_t small_bytes_read_ = 0;

  ReadScheduler* scheduler_ = nullptr;
  std::span<const File> files_;
  ActivityClock* activity_ = nullptr;
  std::mutex mutex_;
  std::condition_variable landed_;
};

}  // namespace millrace
