#include "model/trunk_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/math.h"
#include "runtime/base/limits.h"
#include "runtime/base/units.h"

namespace millrace {

// A stretch of pinned memory that is filled by a set of reads: the tables, a pinned layer, or a
// ring place.
struct TrunkStore::Unit {
  TrunkStore* store = nullptr;
  PinnedBlock block;
  std::vector<RangeRead> reads;
  std::uint32_t pending = 0;  // reads under way
  int status = 0;             // first failure
  const RangeRead* failed = nullptr;
  std::int64_t layer = -1;  // held or being read; -1: none
  bool in_use = false;
  bool ordered = false;  // columns are where they belong
};

namespace {

constexpr std::uint64_t data_alignment =
    64;  // of weights from buffered files; direct ones follow the device block
constexpr std::size_t windows_max = 3 * matrix_role_count;  // codes, scales, zeros

// Of every `stretch` values, the even ones first.
void unzip(std::vector<float>& values, std::size_t stretch) {
  std::vector<float> odd(stretch / 2);
  for (std::size_t at = 0; at + stretch <= values.size(); at += stretch) {
    float* const row = values.data() + at;
    for (std::size_t i = 0; i < odd.size(); ++i) {
      row[i] = row[2 * i];
      odd[i] = row[2 * i + 1];
    }
    std::copy(odd.begin(), odd.end(), row + odd.size());
  }
}

void apply(VectorFix fix, std::size_t stretch, std::vector<float>& values) {
  switch (fix) {
    case VectorFix::none:
      return;
    case VectorFix::unzip:
      return unzip(values, stretch);
    case VectorFix::plus_one:
      for (float& value : values) value += 1;
      return;
    case VectorFix::minus_exp:
      for (float& value : values) value = static_cast<float>(-exp_f64(value));
      return;
  }
}

// Stretches groups x heads of a row become heads x groups; `spare` holds a row.
void order_row(ColumnOrder order, std::byte* row, std::size_t bytes, std::byte* spare) {
  const std::size_t stretch = bytes / (std::size_t{order.groups} * order.heads);
  std::copy_n(row, bytes, spare);
  for (std::size_t group = 0; group < order.groups; ++group)
    for (std::size_t head = 0; head < order.heads; ++head)
      std::copy_n(spare + (group * order.heads + head) * stretch, stretch,
                  row + (head * order.groups + group) * stretch);
}

std::uint64_t unit_step(std::uint32_t block) {
  return std::max<std::uint64_t>(block, data_alignment);
}

}  // namespace

TrunkStore::Window TrunkStore::window(std::uint32_t file, std::uint64_t offset, std::uint64_t bytes,
                                      std::uint32_t block, std::uint64_t position) {
  const std::uint64_t begin = round_down(offset, block);
  const std::uint64_t end = round_up(offset + bytes, block);
  return {.role = 0,
          .file = file,
          .position = round_up(position, unit_step(block)),
          .read_offset = begin,
          .read_bytes = end - begin,
          .skip = offset - begin,
          .needed_bytes = offset + bytes - begin};
}

TrunkStore::Window TrunkStore::table_window(const MatrixExtent& extent, std::uint32_t block) {
  return window(extent.file, extent.offset_bytes, extent.bytes(), block, 0);
}

std::vector<TrunkStore::Window> TrunkStore::layer_windows(
    const LayerSpec& layer, std::span<const std::uint32_t> block_bytes) {
  std::vector<Window> windows;
  std::uint64_t position = 0;
  for (std::size_t role = 0; role < matrix_role_count; ++role) {
    if (!layer.matrices[role]) continue;
    const MatrixExtent& matrix = *layer.matrices[role];
    const auto add = [&](Part part, std::uint32_t file, std::uint64_t offset, std::uint64_t bytes) {
      if (bytes == 0) return;
      windows.push_back(window(file, offset, bytes, block_bytes[file], position));
      windows.back().role = role;
      windows.back().part = part;
      position = windows.back().position + windows.back().read_bytes;
    };
    const ScaleExtent& scales = matrix.scales;
    const ZeroExtent& zeros = matrix.zeros;
    add(Part::codes, matrix.file, matrix.offset_bytes, matrix.span_bytes());
    add(Part::scales, scales.file, scales.offset_bytes, matrix.scale_span_bytes());
    add(Part::zeros, zeros.file, zeros.offset_bytes, zeros.bytes());
  }
  return windows;
}

std::uint64_t TrunkStore::windows_bytes(const std::vector<Window>& windows) {
  if (windows.empty()) return 0;
  return round_up(windows.back().position + windows.back().read_bytes, 4096);
}

Result<TrunkPlan> plan_trunk(const ModelSpec& spec, std::span<const std::uint32_t> block_bytes,
                             std::uint64_t budget_bytes) {
  TrunkPlan plan;
  const auto table_bytes = [&](const MatrixExtent& extent) {
    const auto window = TrunkStore::table_window(extent, block_bytes[extent.file]);
    return PinnedMemory::mapped_bytes(1, window.read_bytes);
  };
  plan.tables_bytes = table_bytes(spec.embedding) + (spec.tied_head ? 0 : table_bytes(spec.head));
  for (const LayerSpec& layer : spec.layers)
    for (const auto& vector : layer.vectors)
      plan.vector_bytes += vector ? vector->columns * sizeof(float) : 0;

  std::vector<std::uint64_t> layer_bytes;
  for (const LayerSpec& layer : spec.layers)
    layer_bytes.push_back(PinnedMemory::mapped_bytes(
        1, TrunkStore::windows_bytes(TrunkStore::layer_windows(layer, block_bytes))));
  const auto layers = static_cast<std::uint32_t>(layer_bytes.size());
  plan.vector_bytes += spec.output_norm.columns * sizeof(float);
  plan.vector_bytes += spec.rope_factors ? spec.rope_factors->columns * sizeof(float) : 0;
  if (const auto& streams = spec.output_streams)
    plan.vector_bytes +=
        (streams->weights.columns + streams->base.columns + streams->scale.columns) * sizeof(float);
  plan.vector_bytes += HashRoutes::bytes(spec);
  const std::uint64_t largest = *std::max_element(layer_bytes.begin(), layer_bytes.end());
  std::uint64_t all = 0;
  for (const std::uint64_t bytes : layer_bytes) all += bytes;

  const std::uint64_t fixed = plan.tables_bytes + plan.vector_bytes;
  plan.smallest_bytes = fixed + std::min(all, trunk_ring_units * largest);
  if (budget_bytes < plan.smallest_bytes)
    return Error{ErrorCode::memory,
                 fmt::format("{}: a trunk budget of {} is too small: embedding, head and a ring of "
                             "{} layers need {} "
                             "(--trunk {} or more)",
                             spec.files.front(), format_bytes(budget_bytes), trunk_ring_units,
                             format_bytes(plan.smallest_bytes), plan.smallest_bytes)};
  if (fixed + all <= budget_bytes) {
    plan.pinned_layers = layers;
    plan.pinned_bytes = all;
    return plan;
  }
  plan.ring_bytes = trunk_ring_units * largest;
  while (fixed + plan.ring_bytes + plan.pinned_bytes + layer_bytes[plan.pinned_layers] <=
         budget_bytes)
    plan.pinned_bytes += layer_bytes[plan.pinned_layers++];
  for (std::uint32_t layer = plan.pinned_layers; layer < layers; ++layer)
    for (const auto& window : TrunkStore::layer_windows(spec.layers[layer], block_bytes))
      plan.streamed_bytes_per_step += window.read_bytes;
  return plan;
}

Result<std::unique_ptr<TrunkStore>> TrunkStore::create(const ModelSpec& spec, const TrunkPlan& plan,
                                                       std::span<const std::uint32_t> block_bytes,
                                                       PinnedMemory& memory) {
  std::unique_ptr<TrunkStore> store(new TrunkStore);
  store->spec_ = &spec;
  store->plan_ = plan;
  const auto make_unit = [&](std::uint64_t bytes,
                             std::size_t reads) -> Result<std::unique_ptr<Unit>> {
    MILLRACE_ASSIGN(auto blocks, memory.allocate(1, bytes));
    auto unit = std::make_unique<Unit>();
    unit->store = store.get();
    unit->block = blocks.front();
    unit->reads.resize(reads);
    return unit;
  };
  std::uint64_t largest = 0;
  for (const LayerSpec& layer : spec.layers) {
    store->windows_.push_back(layer_windows(layer, block_bytes));
    largest = std::max(largest, windows_bytes(store->windows_.back()));
    for (const auto& matrix : layer.matrices)
      if (matrix && matrix->column_order.groups > 0)
        store->spare_row_.resize(
            std::max<std::size_t>(store->spare_row_.size(), matrix->row_bytes));
  }
  for (const MatrixExtent* table : {&spec.embedding, &spec.head}) {
    if (table == &spec.head && spec.tied_head) break;
    const Window window = table_window(*table, block_bytes[table->file]);
    MILLRACE_ASSIGN(auto unit, make_unit(window.read_bytes, 1));
    const Matrix matrix(*table, unit->block.data + window.skip);
    (table == &spec.embedding ? store->embedding_ : store->head_) = matrix;
    unit->reads[0] = {.file = table->file,
                      .offset_bytes = window.read_offset,
                      .bytes = window.read_bytes,
                      .needed_bytes = window.needed_bytes,
                      .target = unit->block.data,
                      .buffer = unit->block.buffer};
    store->pinned_.push_back(std::move(unit));
  }
  if (spec.tied_head) {
    store->head_ = store->embedding_;
    store->head_.rows = spec.head.rows;
  }
  for (LayerIndex layer = 0; layer < plan.pinned_layers; ++layer) {
    MILLRACE_ASSIGN(
        auto unit, make_unit(windows_bytes(store->windows_[layer]), store->windows_[layer].size()));
    unit->layer = layer;
    store->pinned_.push_back(std::move(unit));
  }
  for (std::uint32_t i = 0; plan.ring_bytes > 0 && i < trunk_ring_units; ++i) {
    MILLRACE_ASSIGN(auto unit, make_unit(largest, windows_max));
    store->ring_.push_back(std::move(unit));
  }
  store->weights_.resize(spec.layers.size());
  return store;
}

TrunkStore::~TrunkStore() {
  // Reads under way still point into our units.
  std::unique_lock lock(mutex_);
  landed_.wait(lock, [&] {
    return std::all_of(ring_.begin(), ring_.end(),
                       [](const auto& unit) { return unit->pending == 0; }) &&
           std::all_of(pinned_.begin(), pinned_.end(),
                       [](const auto& unit) { return unit->pending == 0; });
  });
}

namespace {

// Columns become rows: `from` holds `rows` rows.
std::vector<float> transposed(const std::vector<float>& from, std::size_t rows) {
  const std::size_t columns = from.size() / rows;
  std::vector<float> to(from.size());
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < columns; ++column)
      to[column * rows + row] = from[row * columns + column];
  return to;
}

}  // namespace

Status TrunkStore::load_vectors(std::span<const File> files, const KernelTable& kernels) {
  const auto read_vector = [&](const MatrixExtent& extent) -> Result<std::vector<float>> {
    std::vector<std::byte> raw(extent.bytes());
    MILLRACE_TRY(files[extent.file].read_exactly(extent.offset_bytes, raw.data(), raw.size()));
    small_bytes_read_ += raw.size();
    std::vector<float> values(extent.columns);
    kernels.decode_row[static_cast<std::size_t>(extent.type)](raw.data(), values.size(),
                                                              values.data());
    apply(extent.fix, extent.fix_stretch, values);
    return values;
  };
  MILLRACE_ASSIGN(output_norm_, read_vector(spec_->output_norm));
  if (spec_->rope_factors) {
    MILLRACE_ASSIGN(rope_factors_, read_vector(*spec_->rope_factors));
  } else {
    rope_factors_ = spec_->hparams.pair_factors;
  }
  if (const auto& streams = spec_->output_streams) {
    MILLRACE_ASSIGN(output_streams_[0], read_vector(streams->weights));
    MILLRACE_ASSIGN(output_streams_[1], read_vector(streams->base));
    MILLRACE_ASSIGN(output_streams_[2], read_vector(streams->scale));
  }
  MILLRACE_ASSIGN(hash_routes_, HashRoutes::read(*spec_, files));
  small_bytes_read_ += HashRoutes::bytes(*spec_);
  for (LayerIndex layer = 0; layer < spec_->layers.size(); ++layer) {
    for (std::size_t role = 0; role < vector_role_count; ++role) {
      if (!spec_->layers[layer].vectors[role]) continue;
      MILLRACE_ASSIGN(auto values, read_vector(*spec_->layers[layer].vectors[role]));
      if (role == static_cast<std::size_t>(VectorRole::delta_conv))
        values = transposed(values, spec_->hparams.delta.channels());
      vectors_.push_back(std::move(values));
      weights_[layer].vectors[role] = vectors_.back().data();
    }
  }
  return {};
}

Status TrunkStore::load(ReadScheduler& scheduler, std::span<const File> files,
                        const KernelTable& kernels, ActivityClock& activity,
                        FunctionRef<bool(std::uint64_t, std::uint64_t)> progress) {
  scheduler_ = &scheduler;
  files_ = files;
  activity_ = &activity;
  MILLRACE_TRY(load_vectors(files, kernels));
  std::uint64_t all = 0;
  for (const auto& unit : pinned_) all += unit->block.bytes;
  std::uint64_t done = 0;
  // A few units are kept under way so that the drive's queue stays full; progress is told per unit.
  constexpr std::size_t ahead = 4;
  std::size_t started = 0;
  for (std::size_t i = 0; i < pinned_.size(); ++i) {
    for (; started < pinned_.size() && started < i + ahead; ++started)
      start_unit(*pinned_[started],
                 static_cast<LayerIndex>(std::max<std::int64_t>(0, pinned_[started]->layer)));
    Unit& unit = *pinned_[i];
    std::unique_lock lock(mutex_);
    landed_.wait(lock, [&] { return unit.pending == 0; });
    if (unit.status != 0) return read_error(unit);
    done += unit.block.bytes;
    lock.unlock();
    order_columns(unit);
    if (!progress(done, all))
      return Error{ErrorCode::cancelled, "interrupted while the trunk was being read"};
  }
  const std::lock_guard lock(mutex_);
  if (!ring_.empty()) read_ahead_locked(static_cast<LayerIndex>(spec_->layers.size()) - 1);
  return {};
}

// Starts the reads of a unit; `layer` is ignored for the tables, whose one read is ready made.
void TrunkStore::start_unit(Unit& unit, LayerIndex layer) {
  std::array<RangeRead*, windows_max> list{};
  std::size_t count = 0;
  const bool table = unit.layer < 0 && unit.reads.size() == 1;
  if (!table) {
    LayerWeights& weights = weights_[layer];
    for (const Window& window : windows_[layer]) {
      std::byte* const at = unit.block.data + window.position;
      unit.reads[count++] = {.file = window.file,
                             .offset_bytes = window.read_offset,
                             .bytes = window.read_bytes,
                             .needed_bytes = window.needed_bytes,
                             .target = at,
                             .buffer = unit.block.buffer};
      Matrix& matrix = weights.matrices[window.role];
      if (window.part == Part::scales) matrix.scales = at + window.skip;
      else if (window.part == Part::zeros) matrix.zeros = at + window.skip;
      else matrix = Matrix(*spec_->layers[layer].matrices[window.role], at + window.skip);
    }
    unit.layer = layer;
  } else {
    count = 1;
  }
  for (std::size_t i = 0; i < count; ++i) {
    unit.reads[i].priority = ReadPriority::trunk;
    unit.reads[i].owner = &unit;
    unit.reads[i].done = &TrunkStore::range_done;
    list[i] = &unit.reads[i];
  }
  unit.status = 0;
  unit.ordered = false;
  unit.pending = static_cast<std::uint32_t>(count);
  scheduler_->submit(std::span(list).first(count));
}

// Done by the thread that walks the layers, not where reads land: those must not wait.
void TrunkStore::order_columns(Unit& unit) {
  if (unit.layer < 0 || unit.ordered) return;
  const auto layer = static_cast<LayerIndex>(unit.layer);
  for (const Window& window : windows_[layer]) {
    const MatrixExtent& matrix = *spec_->layers[layer].matrices[window.role];
    if (matrix.column_order.groups == 0) continue;
    const bool scales = window.part == Part::scales;
    const std::size_t rows = scales ? matrix.scales.rows : matrix.rows;
    const std::size_t bytes = scales ? matrix.scales.row_bytes : matrix.row_bytes;
    std::byte* const first = unit.block.data + window.position + window.skip;
    for (std::size_t row = 0; row < rows; ++row)
      order_row(matrix.column_order, first + row * bytes, bytes, spare_row_.data());
  }
  unit.ordered = true;
}

void TrunkStore::range_done(RangeRead& range, int status) {
  Unit& unit = *static_cast<Unit*>(range.owner);
  TrunkStore& store = *unit.store;
  const std::lock_guard lock(store.mutex_);
  if (status != 0 && unit.status == 0) {
    unit.status = status;
    unit.failed = &range;
  }
  --unit.pending;
  store.landed_.notify_all();
}

Error TrunkStore::read_error(const Unit& unit) const {
  const RangeRead& read = *unit.failed;
  const std::string cause =
      unit.status < 0 ? "the file ends before it (truncated?)" : std::strerror(unit.status);
  const std::string what = unit.layer < 0 ? std::string("embedding or head")
                                          : fmt::format("trunk of layer {}", unit.layer);
  return Error{ErrorCode::io,
               fmt::format("{}: {}: {} bytes at offset {}: {}", files_[read.source_file].path(),
                           what, read.needed_bytes, read.offset_bytes, cause)};
}

TrunkStore::Unit* TrunkStore::find_unit(LayerIndex layer) noexcept {
  for (const auto& unit : ring_)
    if (unit->layer == static_cast<std::int64_t>(layer)) return unit.get();
  return nullptr;
}

// A ring place that nobody uses or fills; the one with the layer that comes up last is as good as
// any other.
TrunkStore::Unit* TrunkStore::free_unit() noexcept {
  for (const auto& unit : ring_)
    if (!unit->in_use && unit->pending == 0) return unit.get();
  return nullptr;
}

// Starts reading the streamed layers that follow `after` (cyclic) into free places.
void TrunkStore::read_ahead_locked(LayerIndex after) {
  const auto layers = static_cast<LayerIndex>(spec_->layers.size());
  const auto following = [&](LayerIndex layer) {
    return layer + 1 >= layers ? plan_.pinned_layers : std::max(layer + 1, plan_.pinned_layers);
  };
  const LayerIndex first = following(after);
  LayerIndex next = first;
  for (std::uint32_t i = 0; i < trunk_ring_units; ++i, next = following(next)) {
    if (find_unit(next) != nullptr) continue;
    Unit* unit = nullptr;
    for (const auto& candidate : ring_) {
      // A place that holds the layer due first is kept.
      const bool due = candidate->layer == static_cast<std::int64_t>(first);
      if (!candidate->in_use && candidate->pending == 0 && !due) unit = candidate.get();
    }
    if (unit == nullptr) return;
    start_unit(*unit, next);
  }
}

Result<const LayerWeights*> TrunkStore::acquire(LayerIndex layer) {
  if (layer < plan_.pinned_layers) return &weights_[layer];
  std::unique_lock lock(mutex_);
  Unit* unit = find_unit(layer);
  const auto landed = [&] { return unit->pending == 0; };
  if (unit == nullptr || !landed() || unit->status != 0) {
    activity_->demand_begin();
    const bool read_ahead = unit != nullptr;
    if (read_ahead) {
      landed_.wait(lock, landed);
    } else {
      landed_.wait(lock, [&] { return free_unit() != nullptr; });
      unit = free_unit();
    }
    // A read ahead that failed is tried again now that the layer is needed.
    if (!read_ahead || unit->status != 0) {
      start_unit(*unit, layer);
      landed_.wait(lock, landed);
    }
    activity_->demand_end();
  }
  if (unit->status != 0) {
    Error error = read_error(*unit);
    unit->layer = -1;  // the next request tries again
    return error;
  }
  unit->in_use = true;
  lock.unlock();
  order_columns(*unit);
  return &weights_[layer];
}

void TrunkStore::release(LayerIndex layer) noexcept {
  if (layer < plan_.pinned_layers) return;
  const std::lock_guard lock(mutex_);
  Unit* const unit = find_unit(layer);
  MILLRACE_CHECK(unit != nullptr && unit->in_use);
  unit->in_use = false;
  read_ahead_locked(layer);
}

}  // namespace millrace
