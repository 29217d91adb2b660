#include "runtime/sweep/sweep.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "io/file.h"
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/base/counted.h"
#include "runtime/base/log.h"
#include "runtime/engine.h"
#include "runtime/estimate/compute_speed.h"
#include "runtime/estimate/predict.h"
#include "runtime/floor/floor.h"
#include "runtime/floor/floor_figures.h"
#include "runtime/generate.h"
#include "runtime/machine.h"

namespace millrace {

namespace {

constexpr double floor_seconds = 3;   // where the drive has no profile
constexpr double device_least = 0.9;  // below: the page cache had a part in it

Status check_options(const SweepOptions& options) {
  if (options.settings.empty()) return Error{ErrorCode::usage, "there is nothing to compare"};
  constexpr std::uint32_t repeat_max = 1000;
  MILLRACE_TRY(check_range("--repeat", options.repeat, 1, repeat_max));
  if (options.tokens == 0) return out_of_range("-n", "0", "1 or more");
  if (options.prompt.empty())
    return Error{ErrorCode::usage, "the prompt is empty (give text with -p)"};
  return {};
}

// Pages of a file that wait to be written stay; it was most likely just made.
void drop_page_cache(const ModelSpec& spec) {
  for (const std::string& path : spec.files) {
    const auto file = File::open(path, DirectMode::off);
    if (!file) continue;  // the run says it
    fdatasync(file->fd());
    posix_fadvise(file->fd(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

// The kernel takes registered buffers apart behind the end of their ring; until then the memory of
// the run before is missing, and the next plan would be a smaller one.
// Others may have taken it too: that is waited for once.
void wait_for_memory(std::uint64_t& available) {
  constexpr int turns = 100;
  for (int turn = 0; turn < turns; ++turn) {
    if (read_machine().memory_available >= available / 100 * 97) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  available = read_machine().memory_available;
}

class Sweep {
 public:
  Sweep(const SweepOptions& options, ProgressLine& progress, const std::atomic<bool>& cancel)
      : options_(options), progress_(progress), cancel_(cancel) {}

  Result<SweepResult> run() {
    result_.rows.resize(options_.settings.size());
    MILLRACE_TRY(look_up_drive());
    start_ns_ = system_clock().now_ns();
    available_ = read_machine().memory_available;
    for (std::uint32_t round = 0; round < options_.repeat; ++round) {
      for (std::size_t i = 0; i < result_.rows.size(); ++i) {
        const Status done = turn(round % 2 == 0 ? i : result_.rows.size() - 1 - i);
        if (done) continue;
        if (runs_ == 0) return done.error();
        result_.interrupted = done.error();
        return finish();
      }
    }
    if (runs_ == 0) return *first_refusal_;
    return finish();
  }

 private:
  Status look_up_drive();
  Status turn(std::size_t index);
  Status check_room(const Engine& engine, std::size_t prompt_tokens) const;
  Result<SweepRun> run_once(const SweepSetting& setting);
  void show(std::size_t index);
  void note_model(const Engine& engine);
  double profiled(const Engine& engine) const;
  Result<double> memory_rate(const Engine& engine);
  SweepResult finish();

  const SweepOptions& options_;
  ProgressLine& progress_;
  const std::atomic<bool>& cancel_;
  std::uint64_t start_ns_ = 0;
  std::uint64_t available_ = 0;  // memory, before the first run
  std::size_t runs_ = 0;
  std::optional<Error> first_refusal_;
  std::optional<DriveProfile> profile_;
  std::map<unsigned, ComputeSpeed> speeds_;  // by threads
  SweepResult result_;
};

// A drive that was never measured is, since runs of small models are too short to do it.
Status Sweep::look_up_drive() {
  const EngineConfig& config = options_.settings.front().config;
  MILLRACE_ASSIGN(const Drive drive, find_drive(config.model_path));
  profile_ = load_profile(config.profile_folder, drive);
  if (profile_ || drive.memory_file_system) return {};
  const auto file = File::open(config.model_path, DirectMode::off);
  if (!file) return {};  // a folder; what else is wrong with it the run says
  progress_.show("measuring the drive", 0, "");
  ProgressLine quiet(false);
  auto measured =
      measure_floor({.path = config.model_path, .seconds = floor_seconds}, quiet, cancel_);
  if (!measured) return measured.error();
  profile_ = std::move(measured->profile);
  result_.notes.push_back(
      fmt::format("the drive has no profile: measured for {:g} s; `millrace floor` does it better",
                  floor_seconds));
  return {};
}

// Bytes per second by the drives' profiles, or by the one that was made here.
double Sweep::profiled(const Engine& engine) const {
  const double saved = profiled_rate(engine.drives(), engine.direct());
  if (saved > 0 || !profile_ || profile_->direct != engine.direct()) return saved;
  return profile_rate(*profile_, engine.reader().piece_bytes(), engine.reader().depth());
}

void Sweep::show(std::size_t index) {
  const std::size_t all = result_.rows.size() * options_.repeat;
  std::string detail = fmt::format("{} of {}:", runs_ + 1, all);
  for (std::size_t axis = 0; axis < options_.axes.size(); ++axis)
    if (options_.axes[axis].values.size() > 1)
      detail +=
          fmt::format(" {} {}", options_.axes[axis].flag, options_.settings[index].values[axis]);
  if (runs_ > 0) {
    const double seconds = static_cast<double>(system_clock().now_ns() - start_ns_) * 1e-9;
    const double left = seconds / static_cast<double>(runs_) * static_cast<double>(all - runs_);
    detail += fmt::format(", about {:.0f} s left", left);
  }
  progress_.show("run", static_cast<double>(runs_) / static_cast<double>(all), detail);
}

// One run of a setting. A setting that is refused is not tried again.
Status Sweep::turn(std::size_t index) {
  if (cancel_.load()) return Error{ErrorCode::cancelled, "interrupted"};
  SweepRow& row = result_.rows[index];
  if (!row.refused.empty()) return {};
  show(index);
  wait_for_memory(available_);
  auto run = run_once(options_.settings[index]);
  if (run) {
    row.runs.push_back(*run);
    ++runs_;
    return {};
  }
  const ErrorCode code = run.error().code;
  const bool of_setting = code == ErrorCode::memory || code == ErrorCode::usage ||
                          (code == ErrorCode::unsupported && row.runs.empty() && runs_ > 0);
  if (!of_setting || !row.runs.empty()) return run.error();
  row.refused = run.error().what;
  if (!first_refusal_) first_refusal_ = run.error();
  return {};
}

Result<double> Sweep::memory_rate(const Engine& engine) {
  const unsigned threads = engine.plan().threads;
  MILLRACE_ASSIGN(const ComputeSpeed speed,
                  measure_compute(engine.kernels(), expert_type(engine.spec()),
                                  trunk_type(engine.spec()), threads));
  ComputeSpeed& best = speeds_[threads];
  if (speed.memory_bytes_per_second > best.memory_bytes_per_second) best = speed;
  return best.memory_bytes_per_second;
}

void Sweep::note_model(const Engine& engine) {
  result_.model = printable(engine.spec().hparams.name);
  result_.architecture = engine.spec().family->architecture;
  result_.pool_bytes = engine.spec().experts.pool_bytes();
  result_.trunk_bytes = engine.spec().trunk_bytes();
}

// Rows of different lengths could not be compared, nor one with what was asked.
Status Sweep::check_room(const Engine& engine, std::size_t prompt_tokens) const {
  const std::uint64_t before = prompt_tokens + std::uint64_t{options_.warmup_tokens};
  const std::uint64_t context = engine.plan().context;
  if (before + options_.tokens <= context) return {};
  return Error{ErrorCode::usage,
               fmt::format("-n {}: the context of {} positions has room for {} behind the prompt "
                           "and {} of warm-up (raise -c)",
                           options_.tokens, context, context - std::min(context, before),
                           counted(options_.warmup_tokens, "token"))};
}

Result<SweepRun> Sweep::run_once(const SweepSetting& setting) {
  ProgressLine quiet(false);
  GenerateOptions options;
  const auto prepare = [&](const Engine& engine, const Checkpoint&) -> Status {
    MILLRACE_TRY(engine.require_tokenizer());
    MILLRACE_ASSIGN(options.prompt, encode_prompt(engine, options_.prompt));
    drop_page_cache(engine.spec());
    MILLRACE_TRY(check_prompt(engine, options.prompt));
    return check_room(engine, options.prompt.size());
  };
  const ModelCheck check(prepare);
  const std::uint64_t device_before = kernel_read_bytes();
  MILLRACE_ASSIGN(const auto engine, Engine::create(setting.config, quiet, cancel_, &check));
  note_model(*engine);
  options.warmup_tokens = options_.warmup_tokens;
  options.tokens_max = options_.warmup_tokens + options_.tokens + 1;
  options.sampling.temperature = 0;
  options.ignore_eos = true;
  MILLRACE_ASSIGN(const GenerateResult made, generate(*engine, options, [](std::string_view) {}));
  if (made.error) return *made.error;
  MILLRACE_CHECK(made.decode.tokens == options_.tokens);
  const std::uint64_t device_after = kernel_read_bytes();
  const EngineCounters& decode = made.decode.counters;
  const auto tokens = static_cast<double>(made.decode.tokens);
  const FloorFigures floor = floor_figures(*engine, made.decode, profiled(*engine));
  SweepRun run;
  run.tokens_per_second = made.decode.tokens_per_second();
  run.floor_share = floor.share;
  if (floor.share > 0) run.floor_tokens_per_second = run.tokens_per_second / floor.share;
  const std::uint64_t requests = decode.experts.hits + decode.experts.misses;
  run.hit_rate =
      requests == 0 ? 1 : static_cast<double>(decode.experts.hits) / static_cast<double>(requests);
  run.bytes_per_token = static_cast<double>(decode.reads.bytes) / tokens;
  run.stalled_share = static_cast<double>(decode.times.stalled_ns) * 1e-9 / made.decode.seconds;
  const EngineCounters all = engine->counters();
  if (device_after > 0)  // else the kernel does not say
    run.device_share = std::min(1.0, static_cast<double>(device_after - device_before) /
                                         static_cast<double>(all.reads.bytes + all.small_bytes));
  if (engine->prediction()) run.predicted = engine->prediction()->middle;
  run.state_hash = made.state_hash;
  const double weights = token_weight_bytes(engine->spec());
  MILLRACE_ASSIGN(const double rate, memory_rate(*engine));
  run.memory_tokens_per_second = rate / weights;
  return run;
}

SweepResult Sweep::finish() {
  progress_.clear();
  double least = 1;
  for (const SweepRow& row : result_.rows)
    for (const SweepRun& run : row.runs)
      if (run.device_share >= 0) least = std::min(least, run.device_share);
  if (least < device_least)
    result_.notes.push_back(fmt::format(
        "the page cache gave a part of what was read, up to {:.0f} % of a run's bytes: such rows "
        "measure memory too, and may be above the drive's floor",
        100 * (1 - least)));
  return std::move(result_);
}

}  // namespace

Result<std::vector<SweepSetting>> sweep_settings(
    const std::vector<SweepAxis>& axes,
    FunctionRef<Result<EngineConfig>(const std::vector<std::string>& values)> make) {
  std::vector<SweepSetting> made(1);
  for (const SweepAxis& axis : axes) {
    if (axis.values.empty())
      return Error{ErrorCode::usage, axis.flag + ": give at least one value"};
    std::vector<std::string> values;
    for (const std::string& value : axis.values)
      if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
    if (made.size() * values.size() > sweep_settings_max)
      return Error{ErrorCode::usage, fmt::format("more than {} combinations of settings: give "
                                                 "fewer values",
                                                 sweep_settings_max)};
    std::vector<SweepSetting> longer;
    for (const SweepSetting& setting : made) {
      for (const std::string& value : values) {
        longer.push_back(setting);
        longer.back().values.push_back(value);
      }
    }
    made = std::move(longer);
  }
  for (SweepSetting& setting : made) {
    MILLRACE_ASSIGN(setting.config, make(setting.values));
  }
  return made;
}

bool SweepResult::same_state() const {
  std::set<std::uint64_t> states;
  for (const SweepRow& row : rows)
    for (const SweepRun& run : row.runs) states.insert(run.state_hash);
  return states.size() <= 1;
}

Result<SweepResult> run_sweep(const SweepOptions& options, ProgressLine& progress,
                              const std::atomic<bool>& cancel) {
  MILLRACE_TRY(check_options(options));
  return Sweep(options, progress, cancel).run();
}

}  // namespace millrace
