#include "runtime/estimate/estimate.h"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "kernels/dispatch.h"
#include "model/format/open.h"
#include "runtime/base/counted.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"
#include "runtime/doctor/doctor.h"
#include "runtime/estimate/header_file.h"
#include "runtime/estimate/known_pace.h"
#include "runtime/estimate/known_routing.h"
#include "runtime/fixture/fixture.h"
#include "runtime/machine.h"
#include "runtime/presets.h"
#include "runtime/read_joins.h"
#include "runtime/run_drives.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t header_bytes_max = 512 * MiB;
constexpr std::uint64_t pretended_bytes = std::uint64_t{1} << 42;  // 4 TiB

// The model's sizes, and the header file that they came from if the model is not all there.
struct OpenModel {
  ModelSpec spec;
  std::uint64_t file_bytes = 0;
  bool complete = true;
  bool shape = false;  // there is no file
};

std::uint64_t end_of_last_tensor(const Checkpoint& checkpoint) {
  std::uint64_t end = 0;
  for (const TensorInfo& tensor : checkpoint.tensors())
    end = std::max(end, tensor.offset_bytes + tensor.bytes);
  return end;
}

// An error about the file that stands in for another.
Error renamed(const Error& error, const std::string& from, const std::string& to) {
  Error made = error;
  if (const auto at = made.what.find(from); at != std::string::npos)
    made.what.replace(at, from.size(), printable(to, 4096));
  return made;
}

// A file that ends early: its header may be whole.
Result<OpenModel> open_beginning(const std::string& path, const Error& whole_error) {
  std::error_code error;
  const std::uint64_t size = fs::file_size(path, error);
  if (error || size == 0) return whole_error;
  std::ifstream file(path, std::ios::binary);
  std::string header(std::min(size, header_bytes_max), '\0');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  header.resize(static_cast<std::size_t>(file.gcount()));
  MILLRACE_ASSIGN(const HeaderFile pretended, HeaderFile::create(header, pretended_bytes));
  auto checkpoint = open_checkpoint(pretended.path());
  if (!checkpoint) return whole_error;
  // Behind the header there must be something that is missing: else the file is not cut, but bad.
  const std::uint64_t end = end_of_last_tensor(*checkpoint);
  if (end <= size || checkpoint->metadata_bytes() > header.size()) return whole_error;
  auto spec = read_model_spec(*checkpoint);
  if (!spec) return renamed(spec.error(), pretended.path(), path);
  OpenModel model;
  model.spec = *std::move(spec);
  model.spec.files = {path};
  model.file_bytes = end;
  model.complete = false;
  return model;
}

// A known shape, by the header that a file of it would have.
Result<OpenModel> open_shape(const EstimateOptions& options) {
  auto shape = find_model_shape(options.model);
  if (!shape)
    return Error{ErrorCode::io,
                 fmt::format("{}: no such file, and no shape of that name (known: {})",
                             printable(options.model, 4096), model_shape_names())};
  FixtureOptions fixture;
  fixture.shape = *std::move(shape);
  MILLRACE_ASSIGN(fixture.mix, find_type_mix(options.type));
  const FixturePlan plan = plan_fixture(fixture);
  MILLRACE_ASSIGN(const HeaderFile pretended, HeaderFile::create(plan.header, plan.file_bytes));
  const auto checkpoint = open_checkpoint(pretended.path());
  if (!checkpoint) return renamed(checkpoint.error(), pretended.path(), fixture.shape.name);
  auto spec = read_model_spec(*checkpoint);
  if (!spec) return renamed(spec.error(), pretended.path(), fixture.shape.name);
  OpenModel model;
  model.spec = *std::move(spec);
  model.spec.files = {fixture.shape.name};
  model.file_bytes = plan.file_bytes;
  model.shape = true;
  return model;
}

Result<OpenModel> open_model(const EstimateOptions& options) {
  const std::string& path = options.model;
  std::error_code unknown;
  if (!fs::exists(path, unknown)) return open_shape(options);
  auto checkpoint = open_checkpoint(path);
  if (!checkpoint) {
    if (checkpoint.error().code != ErrorCode::format) return checkpoint.error();
    return open_beginning(path, checkpoint.error());
  }
  OpenModel model;
  MILLRACE_ASSIGN(model.spec, read_model_spec(*checkpoint));
  for (const std::string& file : model.spec.files) {
    std::error_code error;
    model.file_bytes += fs::file_size(file, error);
  }
  return model;
}

std::uint64_t free_disk(const std::string& path) {
  struct statvfs about = {};
  const std::string folder = path == "." ? path : fs::path(path).parent_path().string();
  if (statvfs(folder.empty() ? "." : folder.c_str(), &about) != 0) return 0;
  return std::uint64_t{about.f_bavail} * about.f_frsize;
}

class Estimator {
 public:
  explicit Estimator(const EstimateOptions& options) : options_(options) {}

  Result<Estimate> run() {
    MILLRACE_ASSIGN(model_, open_model(options_));
    blocks_.assign(std::max<std::size_t>(1, model_.spec.files.size()), 4096);
    MILLRACE_TRY(lay_out());
    machine_ = read_machine();
    describe();
    estimate_.busy = busy_now(options_.root);  // before this program keeps the cores busy
    MILLRACE_TRY(go_on());
    MILLRACE_TRY(measure());
    MILLRACE_TRY(find_routing());
    ask_drive();
    find_pace();
    for (const std::uint64_t ram : budgets()) {
      MILLRACE_TRY(go_on());
      estimate_.budgets.push_back(make_budget(ram));
    }
    MILLRACE_TRY(go_on());
    choose_preset();
    assume();
    return std::move(estimate_);
  }

 private:
  // Where the model lies or would lie.
  std::string place() const { return model_.shape ? "." : options_.model; }
  Status go_on() const {
    if (options_.cancel == nullptr || !options_.cancel->load()) return {};
    return Error{ErrorCode::cancelled, "interrupted"};
  }
  Status lay_out();
  void describe();
  Status measure();
  Status find_routing();
  void ask_drive();
  void find_pace();
  std::string drive_source() const;
  std::vector<std::uint64_t> budgets();
  Budget make_budget(std::uint64_t ram);
  Machine machine_for(std::uint64_t ram) const;
  Result<Plan> plan_for(std::uint64_t ram, const std::string& preset) const;
  void choose_preset();
  void assume();

  const EstimateOptions& options_;
  OpenModel model_;
  std::vector<std::uint32_t> blocks_;
  SlotLayout layout_;
  Machine machine_;
  std::optional<RoutingRecord> routing_;
  std::string routing_key_;  // of a model that runs can have left something of; else empty
  std::optional<KnownPace> pace_;
  RunDrive drive_;
  const KernelTable* kernels_ = nullptr;
  Estimate estimate_;
};

void Estimator::describe() {
  const ModelSpec& spec = model_.spec;
  estimate_.name = printable(spec.hparams.name);
  estimate_.architecture = spec.family->architecture;
  estimate_.file_bytes = model_.file_bytes;
  estimate_.complete = model_.complete;
  estimate_.on_disk = model_.complete && !model_.shape;
  estimate_.pool_bytes = spec.experts.pool_bytes();
  estimate_.trunk_bytes = spec.trunk_bytes();
  estimate_.expert_bytes = spec.expert_bytes();
  estimate_.layers = spec.hparams.layers;
  estimate_.experts = spec.hparams.experts;
  estimate_.experts_used = spec.hparams.experts_used;
  estimate_.disk_free_bytes = free_disk(place());
  estimate_.ram_available = machine_.memory_available;
}

// The reads of a run, as the drive's profile will have them.
Status Estimator::lay_out() {
  MILLRACE_ASSIGN(drive_.drive, find_drive(place()));
  estimate_.drive_name = drive_.drive.name;
  drive_.profile = load_profile(options_.profile_folder, drive_.drive);
  const RangeOfRead range = [&](std::uint64_t bytes) { return drive_range(drive_.profile, bytes); };
  layout_ = joined_layout(model_.spec.experts, blocks_, range);
  estimate_.drive = range(layout_.largest_read_bytes());
  return {};
}

Status Estimator::measure() {
  MILLRACE_ASSIGN(kernels_, choose_kernels(options_.config.isa));
  const unsigned threads = options_.config.threads != 0
                               ? options_.config.threads
                               : std::min(machine_.cores, limits::threads_max);
  MILLRACE_ASSIGN(estimate_.speed, measure_compute(*kernels_, expert_type(model_.spec),
                                                   trunk_type(model_.spec), threads));
  return {};
}

// A trace that was named, or what earlier runs of the model have left.
Status Estimator::find_routing() {
  if (!model_.shape && model_.complete && estimate_.experts > 0) {
    MILLRACE_ASSIGN(routing_key_, routing_key(model_.spec));
  }
  const std::string& path = options_.routing_path;
  if (!path.empty()) {
    MILLRACE_ASSIGN(RoutingRecord record, read_routing(path, options_.cancel));
    MILLRACE_ASSIGN(routing_, decoded_part(std::move(record), path, model_.spec));
    return {};
  }
  if (!routing_key_.empty())
    routing_ = load_routing(options_.profile_folder, routing_key_, model_.spec);
  return {};
}

// What earlier runs of the model have left: those of a model larger than memory read it directly.
void Estimator::find_pace() {
  if (!routing_key_.empty())
    pace_ = load_pace({options_.profile_folder, routing_key_, kernels_->name,
                       estimate_.speed.threads, pace_drive({&drive_, 1}, true)});
  estimate_.speed = paced(estimate_.speed, token_times(model_.spec, estimate_.speed), pace_);
  estimate_.drive = paced(estimate_.drive, pace_, estimate_.drive_now);
  estimate_.drive_from = drive_source();
}

// The drive that the file lies on, as runs and replay ask it; a shape has no file to read.
void Estimator::ask_drive() {
  if (model_.shape) return;
  estimate_.drive_now = ask_now(drive_, model_.spec.files.front(), layout_.largest_read_bytes());
}

std::string Estimator::drive_source() const {
  std::string from;
  const auto add = [&](const std::string& source) { from += (from.empty() ? "" : ", ") + source; };
  if (drive_.profile)
    add("profile of " + age_text(std::time(nullptr) - drive_.profile->measured_at));
  if (pace_ && pace_->drive_bytes_per_second > 0)
    add(fmt::format("{:.2f} in earlier runs", pace_->drive_bytes_per_second / 1e9));
  if (estimate_.drive_now > 0) add(fmt::format("{:.2f} just now", estimate_.drive_now / 1e9));
  if (!estimate_.drive.measured) add("assumed: not measured");
  if (model_.shape) add("not asked how fast it is now: a shape has no file");
  return from;
}

Result<Plan> Estimator::plan_for(std::uint64_t ram, const std::string& preset) const {
  EngineConfig config = options_.config;
  config.preset = preset;
  return make_plan({model_.spec, layout_, blocks_, config, machine_for(ram)});
}

Machine Estimator::machine_for(std::uint64_t ram) const {
  Machine machine = machine_;
  machine.memory_available = ram;
  machine.memory_source = "the budget";
  return machine;
}

Budget Estimator::make_budget(std::uint64_t ram) {
  Budget budget;
  budget.ram_bytes = ram;
  auto plan = plan_for(ram, "auto");
  if (!plan) {
    budget.refused = plan.error().what;
    return budget;
  }
  EngineConfig config = options_.config;
  config.preset = "auto";
  const Machine machine = machine_for(ram);
  const PlanInput input{model_.spec, layout_, blocks_, config, machine};
  auto run = choose_cache(input, *std::move(plan), {estimate_.speed, estimate_.drive, routing_});
  if (!run) {
    budget.refused = run.error().what;
    return budget;
  }
  budget.plan = std::move(run->plan);
  budget.prediction = std::move(run->prediction);
  return budget;
}

// What was asked for, or from little to all of the model; this machine's own is among them.
std::vector<std::uint64_t> Estimator::budgets() {
  std::vector<std::uint64_t> ram = options_.ram_bytes;
  if (ram.empty()) {
    const std::uint64_t whole = (estimate_.pool_bytes + estimate_.trunk_bytes) / 8 * 10 + 1 * GiB;
    for (std::uint64_t budget = 4 * GiB; budget < whole && ram.size() < 10; budget *= 2)
      ram.push_back(budget);
    ram.push_back(whole);
    ram.push_back(machine_.memory_available);
  }
  std::sort(ram.begin(), ram.end());
  ram.erase(std::unique(ram.begin(), ram.end()), ram.end());
  estimate_.here = static_cast<std::size_t>(
      std::find(ram.begin(), ram.end(), machine_.memory_available) - ram.begin());
  return ram;
}

void Estimator::choose_preset() {
  const auto here = plan_for(machine_.memory_available, "auto");
  if (!here) {
    estimate_.preset = "none: " + here.error().what;
    return;
  }
  std::string fits;
  for (const Preset& preset : presets())
    if (!preset.automatic && plan_for(machine_.memory_available, preset.name)) fits = preset.name;
  estimate_.preset = fmt::format(
      "auto: trunk {}, cache {} of {} available here", format_bytes(here->trunk.total_bytes()),
      format_bytes(here->slots.mapped_bytes), format_bytes(machine_.memory_available));
  if (!fits.empty())
    estimate_.preset += fmt::format(" ({} is the largest named one that fits)", fits);
}

void Estimator::assume() {
  const std::string no_routing =
      "hits: a curve of recorded models, and even routing as the least; --routing TRACE" +
      std::string(model_.shape ? " of such a model tells more"
                               : ", or a run of some tokens, tells how it is with this one");
  std::vector<std::string>& said = estimate_.assumptions;
  if (!drive_.profile)
    said.push_back(fmt::format(
        "the drive ({}) was never measured: {:.1f} to {:.1f} GB/s are assumed; `millrace floor` "
        "measures it",
        estimate_.drive_name, estimate_.drive.low / 1e9, estimate_.drive.high / 1e9));
  if (estimate_.experts > 0) {
    said.push_back(
        routing_ ? "hits: the routing that is known of this model; other texts may hit less often"
                 : no_routing);
    said.push_back("the cache is warm: the first tokens are slower");
  }
  if (pace_)
    said.push_back(fmt::format(
        "computing takes {:.1f} ms a token, as in {} of it{}", 1e3 * pace_->compute_seconds,
        counted(pace_->runs, "earlier run"),
        pace_->drive_bytes_per_second > 0 ? "; the drive gives what it gave there" : ""));
  said.push_back(
      counted(estimate_.speed.threads, "thread", "of this machine; few positions in the context"));
  if (model_.shape)
    said.push_back(fmt::format("weights of type {}, as such files are published", options_.type));
  if (!estimate_.complete)
    said.push_back("the file is not all there: its sizes come from the header");
}

}  // namespace

Result<Estimate> estimate_model(const EstimateOptions& options) {
  MILLRACE_TRY(check_range("-c", options.config.context, 0, limits::context_max));
  return Estimator(options).run();
}

}  // namespace millrace
