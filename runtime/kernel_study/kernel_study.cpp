#include "runtime/kernel_study/kernel_study.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <limits>
#include <string_view>
#include <thread>

#include "io/pinned_memory.h"
#include "kernels/dispatch.h"
#include "runtime/base/counted.h"
#include "runtime/base/limits.h"
#include "runtime/kernel_study/study_team.h"
#include "runtime/kernel_study/weight_sample.h"
#include "runtime/machine.h"

namespace millrace {

namespace {

constexpr double sample_seconds = 2e-3;  // shorter passes are repeated until they take so long
constexpr unsigned scalar_repeats_max = 3;

std::uint64_t cache_bytes(int name, std::uint64_t otherwise) {
  const long bytes = sysconf(name);
  return bytes > 0 ? static_cast<std::uint64_t>(bytes) : otherwise;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

bool same_but_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

bool has_product(DType type, bool unrounded) {
  const KernelTable& table = *supported_kernels().front();
  const auto id = static_cast<std::size_t>(type);
  if (table.matmul_f32[id] != nullptr) return true;
  return !unrounded && (table.matmul_q8[id] != nullptr || table.matmul_q8_super[id] != nullptr);
}

std::vector<DType> all_types(bool unrounded) {
  std::vector<DType> types;
  for (std::size_t id = 0; id < dtype_count; ++id)
    if (has_product(static_cast<DType>(id), unrounded)) types.push_back(static_cast<DType>(id));
  return types;
}

Result<std::vector<DType>> chosen_types(const KernelStudyOptions& options) {
  const std::vector<DType> all = all_types(options.float_activations);
  if (options.types.empty()) return all;
  std::vector<DType> chosen;
  for (const std::string& name : options.types) {
    const auto is_it = [&](DType type) { return same_but_case(dtype_info(type).name, name); };
    const auto found = std::find_if(all.begin(), all.end(), is_it);
    if (found == all.end()) {
      std::string names;
      for (const DType type : all) names += std::string(" ") + dtype_info(type).name;
      return Error{ErrorCode::usage,
                   fmt::format("--type {}: no product has weights of that type; the types are{}",
                               name.substr(0, 40), names)};
    }
    if (std::find(chosen.begin(), chosen.end(), *found) == chosen.end()) chosen.push_back(*found);
  }
  return chosen;
}

// Slowest first; the first is scalar.
Result<std::vector<const KernelTable*>> chosen_tables(const KernelStudyOptions& options) {
  std::vector<const KernelTable*> tables;
  for (const std::string& name : options.isas) {
    MILLRACE_ASSIGN(const KernelTable* const table, choose_kernels(name));
    tables.push_back(table);
  }
  std::vector<const KernelTable*> chosen;
  for (const KernelTable* table : supported_kernels()) {
    const bool wanted = std::find(tables.begin(), tables.end(), table) != tables.end();
    if (chosen.empty() || tables.empty() || wanted) chosen.push_back(table);
  }
  return chosen;
}

// Hardware threads that this process may use: with more, some would wait while the CPU time of
// those that run says that all read at once.
unsigned usable_threads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0)
    return static_cast<unsigned>(CPU_COUNT(&allowed));
  return std::max(1u, std::thread::hardware_concurrency());
}

Status check_threads(std::span<const unsigned> counts) {
  const unsigned most = std::min(usable_threads(), limits::threads_max);
  for (const unsigned count : counts)
    if (count < 1 || count > most)
      return out_of_range("--threads", std::to_string(count),
                          fmt::format("1 to {}, the cores that this process may use", most));
  return {};
}

Status check_options(const KernelStudyOptions& options) {
  if (options.columns == 0 || options.columns % 256 != 0 || options.columns > 65536)
    return out_of_range("--columns", std::to_string(options.columns),
                        "a multiple of 256 up to 65536");
  MILLRACE_TRY(check_range("--tokens", options.tokens, 1, limits::batch_tokens_max));
  MILLRACE_TRY(check_range("--repeats", options.repeats, 1, 1000));
  return check_threads(options.threads);
}

// Each once, at its first place.
std::vector<unsigned> distinct(std::span<const unsigned> counts) {
  std::vector<unsigned> kept;
  for (const unsigned count : counts)
    if (std::find(kept.begin(), kept.end(), count) == kept.end()) kept.push_back(count);
  return kept;
}

void fill_in(KernelStudy& study) {
  KernelStudyOptions& options = study.options;
  study.l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, 512 * KiB);
  if (options.memory_bytes == 0)
    options.memory_bytes =
        std::clamp(2 * cache_bytes(_SC_LEVEL3_CACHE_SIZE, 0), 256 * MiB, 512 * MiB);
  options.threads = distinct(options.threads);
  if (!options.threads.empty()) return;
  options.threads.push_back(1);
  if (const unsigned cores = read_machine().cores; cores > 1) options.threads.push_back(cores);
}

// What one thread of so many passes over.
WeightSample sample_of(const KernelStudy& study, DType type, Residency residency,
                       unsigned threads) {
  const std::uint64_t bytes =
      residency == Residency::l2 ? study.l2_bytes / 2 : study.options.memory_bytes / threads;
  return {type, study.options.columns, bytes};
}

// Floats that one thread writes.
std::uint64_t outputs_of(const KernelStudy& study, const WeightSample& sample,
                         std::uint32_t tokens) {
  return tokens == decoding ? 2 * std::uint64_t{study.options.columns}
                            : std::uint64_t{tokens} * sample.rows();
}

// The most that one thread of so many holds in any cell.
struct ThreadRoom {
  std::uint64_t weights = 0;  // bytes
  std::uint64_t outputs = 0;  // floats
};
ThreadRoom thread_room(const KernelStudy& study, std::span<const DType> types, unsigned threads) {
  ThreadRoom room;
  for (const DType type : types)
    for (const Residency residency : {Residency::l2, Residency::memory})
      for (const std::uint32_t tokens : {decoding, 1u, study.options.tokens}) {
        const WeightSample sample = sample_of(study, type, residency, threads);
        room.weights = std::max(room.weights, sample.bytes());
        room.outputs = std::max(room.outputs, outputs_of(study, sample, tokens));
      }
  return room;
}

// `memory` error if any number of threads takes more than is there.
Status check_memory(const KernelStudy& study, std::span<const DType> types, std::size_t tables) {
  const KernelStudyOptions& options = study.options;
  std::uint64_t weights = 0, others = 0;
  for (const unsigned threads : options.threads) {
    const ThreadRoom room = thread_room(study, types, threads);
    const std::uint64_t outputs = 2 * threads * room.outputs * sizeof(float);  // and the expected
    const std::uint64_t panels = tables * PanelMemory::bytes(options.columns, threads);
    weights = std::max(weights, threads * room.weights);
    others = std::max(others, outputs + panels);
  }
  others += ActivationSample::bytes(options.columns, options.tokens);
  const std::string what = fmt::format(
      "measuring the kernels (weights {}: --size, --threads; activations, outputs and "
      "panels {}: --tokens, --columns, --threads)",
      format_bytes(weights), format_bytes(others));
  return require_memory(what, weights + others);
}

// All cells with one number of threads.
class TeamStudy {
 public:
  TeamStudy(KernelStudy& study, std::span<const KernelTable* const> tables,
            const ActivationSample& inputs, StudyTeam team, const std::atomic<bool>& cancel)
      : study_(study), tables_(tables), inputs_(inputs), team_(std::move(team)), cancel_(cancel) {
    for (const KernelTable* table : tables_)
      panels_.emplace_back(*table, study_.options.columns, team_.threads());
  }

  Status make_memory(std::span<const DType> types) {
    const ThreadRoom room = thread_room(study_, types, team_.threads());
    for (auto* const each : {&y_, &expected_}) {
      each->resize(team_.threads());
      for (auto& outputs : *each) outputs.reserve(room.outputs);
    }
    MILLRACE_ASSIGN(blocks_, memory_.allocate(team_.threads(), room.weights));
    const PinnedMemoryStats stats = memory_.stats();
    study_.huge_bytes = std::max(study_.huge_bytes, stats.huge_bytes);
    study_.mapped_bytes = std::max(study_.mapped_bytes, stats.bytes);
    for (const Residency residency : {Residency::l2, Residency::memory})
      study_.limits.push_back({residency, team_.threads(), 0, {}});
    return {};
  }

  // False if it was cancelled; then the cell has no figures.
  bool measure(DType type, Residency residency, std::uint32_t tokens) {
    const std::size_t first = study_.figures.size();
    if (measure_all(type, residency, tokens)) return true;
    study_.figures.resize(first);
    return false;
  }

 private:
  bool measure_all(DType type, Residency residency, std::uint32_t tokens) {
    const WeightSample sample = sample_of(study_, type, residency, team_.threads());
    const auto fill = [&](unsigned i) { sample.fill(blocks_[i].data, i); };
    team_.run(1, fill);
    cell_ = {type, residency, tokens, sample.bytes(), {}, sample.rows()};
    if (residency == Residency::memory) cell_.scalar_rows = few_rows(sample.rows());
    for (unsigned i = 0; i < team_.threads(); ++i)
      cell_.weights.push_back(sample.view(blocks_[i].data));
    for (auto& y : y_) y.resize(outputs_of(study_, sample, tokens));
    const std::size_t first = study_.figures.size();
    for (const KernelTable* table : tables_) study_.figures.push_back(open_figure(*table));
    std::vector<unsigned> passes;
    for (std::size_t i = 0; i < tables_.size() && !cancel_.load(); ++i)
      passes.push_back(warm_up(*tables_[i], study_.figures[first + i]));
    for (unsigned repeat = 0; repeat < study_.options.repeats; ++repeat) {
      if (tokens <= 1 && !cancel_.load()) read_loop();
      for (std::size_t i = 0; i < tables_.size(); ++i) {
        if (cancel_.load()) return false;
        const bool slow = residency == Residency::memory || tokens > 1;
        if (i == 0 && repeat >= (slow ? 1 : scalar_repeats_max)) continue;
        repeat_product(*tables_[i], passes[i], study_.figures[first + i]);
      }
    }
    const double scalar = study_.figures[first].median();
    for (std::size_t i = first; i < study_.figures.size(); ++i)
      study_.figures[i].scalar_bytes_per_second = scalar;
    return !cancel_.load();
  }

  // What the threads do now.
  struct Cell {
    DType type;
    Residency residency;
    std::uint32_t tokens;
    std::uint64_t bytes;  // of each thread
    std::vector<WeightRows> weights;
    std::size_t scalar_rows;  // of each thread, the first ones: what the yardstick computes
  };
  // The scalar kernels would take seconds to half a minute for all weights from memory.
  static std::size_t few_rows(std::size_t rows) {
    return std::min(rows, std::max<std::size_t>(128, round_down(rows / 64, 128)));
  }

  KernelFigure open_figure(const KernelTable& table) const {
    KernelFigure figure{};
    figure.type = cell_.type;
    figure.isa = table.name;
    figure.residency = cell_.residency;
    figure.threads = team_.threads();
    figure.tokens = cell_.tokens;
    const std::size_t all = cell_.weights.front().rows;
    const std::size_t rows = is_yardstick(table) ? cell_.scalar_rows : all;
    figure.bytes = cell_.bytes * rows / all * team_.threads();
    figure.sampled = rows < all;
    figure.multiply_adds =
        std::uint64_t{cell_.tokens} * team_.threads() * rows * study_.options.columns;
    return figure;
  }
  bool is_yardstick(const KernelTable& table) const { return &table == tables_.front(); }

  double run_kernel(const KernelTable& table, unsigned passes, bool compared) {
    if (cell_.tokens != decoding) return run_product(table, passes);
    const auto decode = [&](unsigned i) { decode_rows(table, i, compared); };
    return team_.run(passes, decode);
  }

  // Every row to the same place, from which, where bits are compared, all are folded into one.
  void decode_rows(const KernelTable& table, unsigned i, bool folded) {
    const auto id = static_cast<std::size_t>(cell_.type);
    const WeightRows& weights = cell_.weights[i];
    float* const row = y_[i].data();
    float* const fold = row + weights.columns;
    const std::size_t rows = is_yardstick(table) ? cell_.scalar_rows : weights.rows;
    for (std::size_t r = 0; r < rows; ++r) {
      if (table.decode_scaled[id] != nullptr) table.decode_scaled[id](weights, r, row);
      else table.decode_row[id](weights.data + r * weights.row_bytes, weights.columns, row);
      if (folded && r < cell_.scalar_rows) fold_bits(row, weights.columns, fold);
    }
  }
  static void fold_bits(const float* row, std::size_t count, float* fold) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto folded = std::bit_cast<std::uint32_t>(fold[i]) * 31 +  // any odd factor
                          std::bit_cast<std::uint32_t>(row[i]);
      fold[i] = std::bit_cast<float>(folded);
    }
  }

  double run_product(const KernelTable& table, unsigned passes) {
    // Not the scalar kernels, the yardstick: so their bits are those of one token at a time.
    const auto index = static_cast<std::size_t>(std::find(tables_.begin(), tables_.end(), &table) -
                                                tables_.begin());
    const PanelScratch panels = is_yardstick(table) ? PanelScratch() : panels_[index].view();
    const auto product = [&](unsigned i) {
      WeightRows weights = cell_.weights[i];
      if (is_yardstick(table)) weights.rows = cell_.scalar_rows;
      inputs_.multiply(table, panels.alone(i), cell_.type, study_.options.float_activations,
                       weights, cell_.tokens, y_[i].data());
    };
    return team_.run(passes, product);
  }

  // One pass, whose outputs are compared with the scalar ones; how many passes make a sample.
  unsigned warm_up(const KernelTable& table, KernelFigure& figure) {
    for (auto& y : y_) std::fill(y.begin(), y.end(), std::numeric_limits<float>::quiet_NaN());
    double seconds = run_kernel(table, 1, true);
    if (is_yardstick(table)) keep_expected();
    figure.same_bits = true;
    for (unsigned i = 0; i < team_.threads() && !is_yardstick(table); ++i)
      figure.same_bits &= has_scalar_bits(i);
    if (cell_.tokens == decoding) seconds = run_kernel(table, 1, false);  // folding takes long
    return passes_for(seconds);
  }

  void keep_expected() {
    const std::size_t count =
        cell_.tokens == decoding ? 2 * study_.options.columns : cell_.tokens * cell_.scalar_rows;
    for (std::size_t i = 0; i < y_.size(); ++i)
      expected_[i].assign(y_[i].begin(), y_[i].begin() + static_cast<std::ptrdiff_t>(count));
  }

  // A thread's outputs, as far as the yardstick has them; the others are at least written.
  bool has_scalar_bits(unsigned i) const {
    const auto same = [&](std::size_t at, std::size_t expected_at, std::size_t count) {
      return std::memcmp(y_[i].data() + at, expected_[i].data() + expected_at,
                         count * sizeof(float)) == 0;
    };
    const std::size_t fold = study_.options.columns;
    if (cell_.tokens == decoding) return same(fold, fold, fold);
    const auto is_poison = [](float value) { return value != value; };
    if (std::any_of(y_[i].begin(), y_[i].end(), is_poison)) return false;
    const std::size_t rows = cell_.scalar_rows;
    for (std::size_t t = 0; t < cell_.tokens; ++t)
      if (!same(t * cell_.weights[i].rows, t * rows, rows)) return false;
    return true;
  }

  static unsigned passes_for(double seconds) {
    return static_cast<unsigned>(std::clamp(sample_seconds / seconds, 1.0, 1e6));
  }

  void repeat_product(const KernelTable& table, unsigned passes, KernelFigure& figure) {
    const double seconds = run_kernel(table, passes, false);
    figure.bytes_per_second.push_back(static_cast<double>(figure.bytes * passes) / seconds);
    if (figure.tokens <= 1 && !figure.sampled)
      figure.beside_loop.push_back(figure.bytes_per_second.back() /
                                   limit().bytes_per_second.back());
  }

  void read_loop() {
    const KernelTable& table = *supported_kernels().back();
    std::uint64_t sums[limits::threads_max] = {};
    const std::uint64_t bytes = round_down(cell_.bytes, 8);
    const auto read = [&](unsigned i) { sums[i] += table.read_all(blocks_[i].data, bytes); };
    const unsigned passes = passes_for(team_.run(1, read));
    const double seconds = team_.run(passes, read);
    const std::uint64_t all = bytes * team_.threads();
    limit().bytes = std::max(limit().bytes, all);
    limit().bytes_per_second.push_back(static_cast<double>(all * passes) / seconds);
  }

  ReadLimit& limit() {
    return study_.limits[study_.limits.size() - (cell_.residency == Residency::l2 ? 2 : 1)];
  }

  KernelStudy& study_;
  std::span<const KernelTable* const> tables_;
  const ActivationSample& inputs_;
  StudyTeam team_;
  const std::atomic<bool>& cancel_;
  PinnedMemory memory_;
  std::vector<PinnedBlock> blocks_;  // one a thread
  std::vector<PanelMemory> panels_;  // one a table
  Cell cell_{};
  std::vector<std::vector<float>> y_, expected_;  // of each thread
};

std::string cell_text(DType type, Residency residency, unsigned threads, std::uint32_t tokens) {
  return fmt::format(
      "{} {}, {}, {}", dtype_info(type).name, residency == Residency::l2 ? "in L2" : "from memory",
      counted(threads, "thread"), tokens == decoding ? "decoding" : counted(tokens, "token"));
}

}  // namespace

const char* residency_name(Residency residency) noexcept {
  return residency == Residency::l2 ? "l2" : "memory";
}

double ReadLimit::best() const noexcept {
  return bytes_per_second.empty()
             ? 0
             : *std::max_element(bytes_per_second.begin(), bytes_per_second.end());
}

double KernelFigure::median() const noexcept { return median_of(bytes_per_second); }

double KernelFigure::multiply_adds_per_second() const noexcept {
  return median() * static_cast<double>(multiply_adds) / static_cast<double>(bytes);
}

const ReadLimit& KernelStudy::limit_of(const KernelFigure& figure) const {
  const auto found = std::find_if(limits.begin(), limits.end(), [&](const ReadLimit& limit) {
    return limit.residency == figure.residency && limit.threads == figure.threads;
  });
  MILLRACE_CHECK(found != limits.end());
  return *found;
}

double KernelStudy::share(const KernelFigure& figure) const {
  return figure.tokens > 1 || figure.sampled ? 0 : figure.median() / limit_of(figure).best();
}

double KernelStudy::share_by_turns(const KernelFigure& figure) {
  return median_of(figure.beside_loop);
}

Result<KernelStudy> study_kernels(const KernelStudyOptions& options, ProgressLine& progress,
                                  const std::atomic<bool>& cancel) {
  MILLRACE_TRY(check_options(options));
  MILLRACE_ASSIGN(const std::vector<DType> types, chosen_types(options));
  MILLRACE_ASSIGN(const auto tables, chosen_tables(options));
  KernelStudy study;
  study.options = options;
  fill_in(study);
  MILLRACE_TRY(check_memory(study, types, tables.size()));
  const ActivationSample inputs(*supported_kernels().back(), options.columns, options.tokens);
  std::size_t done = 0;
  std::vector<std::uint32_t> works = {1, decoding};
  if (options.tokens > 1) works.push_back(options.tokens);
  const std::size_t cells = study.options.threads.size() * types.size() * 2 * works.size();
  for (const unsigned threads : study.options.threads) {
    MILLRACE_ASSIGN(StudyTeam made, StudyTeam::create(threads));
    TeamStudy team(study, tables, inputs, std::move(made), cancel);
    MILLRACE_TRY(team.make_memory(types));
    for (const DType type : types)
      for (const std::uint32_t tokens : works)
        for (const Residency residency : {Residency::l2, Residency::memory}) {
          progress.show("measuring", static_cast<double>(done++) / static_cast<double>(cells),
                        cell_text(type, residency, threads, tokens));
          study.cancelled = cancel.load() || !team.measure(type, residency, tokens);
          if (!study.cancelled) continue;
          progress.clear();
          return study;
        }
  }
  progress.clear();
  return study;
}

Status check_study(const KernelStudy& study) {
  for (const KernelFigure& figure : study.figures) {
    const std::string name =
        fmt::format("{} {}", figure.isa,
                    cell_text(figure.type, figure.residency, figure.threads, figure.tokens));
    if (!figure.same_bits)
      return Error{ErrorCode::verify, name + ": other bits than the scalar kernel's"};
    if (study.judges_shares() && study.share(figure) > kernel_share_max)
      return Error{ErrorCode::verify,
                   fmt::format("{}: {:.2f} of the read loop, which is then no limit", name,
                               study.share(figure))};
  }
  return {};
}

}  // namespace millrace
