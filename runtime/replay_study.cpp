#include "runtime/replay_study.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "io/file.h"
#include "model/format/open.h"
#include "model/model_spec.h"
#include "prefetch/policies/clairvoyant.h"
#include "prefetch/replay.h"
#include "prefetch/routing_walks.h"
#include "runtime/base/counted.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"
#include "runtime/estimate/predict.h"

namespace millrace {

namespace {

// Where the experts are, and how large: of a model, or of figures.
struct Pool {
  SlotLayout layout;
  std::uint64_t bytes = 0;
  std::uint32_t top_k = 0;
};

struct OpenedModel {
  ModelSpec spec;
  ModelFigures figures;
  std::vector<std::uint32_t> block_bytes;
};

Result<OpenedModel> open_model(const std::string& path) {
  MILLRACE_ASSIGN(const Checkpoint checkpoint, open_checkpoint(path));
  OpenedModel model;
  MILLRACE_ASSIGN(model.spec, read_model_spec(checkpoint));
  const Hparams& h = model.spec.hparams;
  if (h.experts == 0)
    return Error{ErrorCode::usage,
                 fmt::format("--model {}: the model has no routed experts", path)};
  for (const std::string& file : model.spec.files) {
    MILLRACE_ASSIGN(const File opened, File::open(file, DirectMode::automatic));
    model.block_bytes.push_back(opened.block_bytes());
  }
  model.figures = {path,           h.name, model.spec.family->architecture, h.layers, h.experts,
                   h.experts_used, {}};
  for (const LayerSpec& layer : model.spec.layers) model.figures.routed.push_back(layer.experts);
  return model;
}

std::vector<bool> routed_layers(const RoutingRecord& record) {
  std::vector<bool> routed(record.header.layers, false);
  for (const RoutingRow& row : record.rows) routed[row.layer] = true;
  return routed;
}

Result<Pool> pool_of_figures(const ReplayOptions& options, const RoutingRecord& record,
                             std::string& note) {
  const auto& sizes = record.header.expert_bytes;
  std::uint64_t bytes = options.expert_bytes;
  if (bytes == 0 && !sizes.empty())
    bytes = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0}) / sizes.size();
  if (bytes == 0)
    return Error{ErrorCode::usage,
                 options.trace_path +
                     ": does not say how large an expert is: give --model or --expert-bytes"};
  if (options.expert_bytes == 0 && sizes.size() > 1)
    note = fmt::format("experts of {} sizes: all taken as {}, their mean", sizes.size(),
                       format_bytes(bytes));
  if (options.experts != 0 && options.experts < record.header.experts)
    return Error{ErrorCode::usage, fmt::format("--experts {}: {} has {}", options.experts,
                                               options.trace_path, record.header.experts)};
  const std::uint32_t experts = std::max(options.experts, record.header.experts);
  const ExpertExtents extents = extents_of_shape(routed_layers(record), experts, bytes);
  const std::vector<std::uint32_t> blocks = {1};
  return Pool{SlotLayout(extents, blocks), extents.pool_bytes(), record.header.experts_used};
}

Result<Pool> open_pool(const ReplayOptions& options, const RoutingRecord& record,
                       std::string& note) {
  if (options.model_path.empty()) return pool_of_figures(options, record, note);
  MILLRACE_ASSIGN(const OpenedModel model, open_model(options.model_path));
  MILLRACE_TRY(check_trace_of_model(record, options.trace_path, model.figures));
  if (record.header.experts_used < model.figures.experts_used)
    note = fmt::format("the trace holds {} of the {} experts that a token of this model uses",
                       record.header.experts_used, model.figures.experts_used);
  return Pool{SlotLayout(model.spec.experts, model.block_bytes), model.spec.experts.pool_bytes(),
              model.figures.experts_used};
}

// Tokens in calls [begin, end): each walk has its own.
std::uint64_t tokens_of(std::span<const RoutingCall> calls) {
  std::uint64_t tokens = 0;
  for (std::size_t i = 0; i < calls.size(); ++i)
    if (i == 0 || calls[i].layer <= calls[i - 1].layer) tokens += calls[i].tokens;
  return tokens;
}

// The first call of the first walk behind the warm-up.
std::size_t end_of_warmup(std::span<const RoutingCall> calls, double share) {
  const double wanted = static_cast<double>(tokens_of(calls)) * share;
  std::uint64_t tokens = 0;
  std::size_t last = 0;  // is left in any case
  for (std::size_t i = 0; i < calls.size(); ++i) {
    if (i != 0 && calls[i].layer > calls[i - 1].layer) continue;
    last = i;
    if (static_cast<double>(tokens) >= wanted) break;
    tokens += calls[i].tokens;
  }
  return last;
}

std::string text_of(const SizeSpec& size) {
  if (size.kind == SizeSpec::Kind::percent) return fmt::format("{:g}%", size.percent);
  return size.kind == SizeSpec::Kind::all ? "all" : format_bytes(size.bytes);
}

Result<SlotPlan> plan_capacity(const Pool& pool, const SizeSpec& capacity,
                               const std::string& path) {
  const std::uint64_t budget =
      capacity.kind == SizeSpec::Kind::all ? ~std::uint64_t{0} : capacity.resolve(pool.bytes, 0);
  auto plan = plan_slots(pool.layout, budget, pool.top_k);
  if (plan) return plan;
  std::string cause = plan.error().what;
  constexpr std::string_view flag_of_runs = "--cache ";
  if (const auto at = cause.find(flag_of_runs); at != std::string::npos)
    cause.replace(at, flag_of_runs.size(), "--capacity ");
  return Error{ErrorCode::usage,
               fmt::format("--capacity {} of {}: {}", text_of(capacity), path, cause)};
}

Result<std::unique_ptr<EvictionPolicy>> policy_of(const std::string& name,
                                                  std::span<const RoutingCall> calls) {
  if (name == "belady")
    return std::unique_ptr<EvictionPolicy>(std::make_unique<ClairvoyantPolicy>(calls));
  return make_eviction_policy(name);
}

struct Sums {
  std::uint64_t hits = 0, misses = 0, compulsory = 0, bytes = 0;
  std::uint64_t requests() const { return hits + misses; }
};

Sums sum(std::span<const CallCounts> counts) {
  Sums sums;
  for (const CallCounts& call : counts) {
    sums.hits += call.hits;
    sums.misses += call.misses;
    sums.compulsory += call.compulsory;
    sums.bytes += call.miss_bytes;
  }
  return sums;
}

double rate(std::uint64_t part, std::uint64_t whole) {
  return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

// Everything that the rows of a study share.
class Study {
 public:
  Study(const ReplayOptions& options, const RoutingRecord& record, Pool pool)
      : options_(options),
        pool_(std::move(pool)),
        calls_(routing_calls(record)),
        shuffled_(shuffled_calls(calls_, options.shuffle_seed)),
        warm_(end_of_warmup(calls_, options.warmup)),
        shuffled_warm_(end_of_warmup(shuffled_, options.warmup)) {
    const auto warm_calls = std::span(calls_).subspan(warm_);
    only_decode_ = std::any_of(warm_calls.begin(), warm_calls.end(), [](const RoutingCall& call) {
      return call.phase == RoutingPhase::generation;
    });
  }

  std::uint64_t tokens() const { return tokens_of(calls_); }
  std::uint64_t warm_tokens() const { return tokens_of(std::span(calls_).subspan(warm_)); }

  Status fits(const SizeSpec& capacity) const {
    MILLRACE_TRY(plan_capacity(pool_, capacity, options_.trace_path));
    return {};
  }

  Result<ReplayRow> row(const std::string& policy, const SizeSpec& capacity) const {
    ReplayRow made;
    made.policy = policy;
    made.capacity = capacity;
    MILLRACE_ASSIGN(const SlotPlan plan, plan_capacity(pool_, capacity, options_.trace_path));
    made.cache_bytes = plan.bytes;
    made.slots = plan.slots;
    MILLRACE_ASSIGN(const auto counts, counts_of(calls_, plan, policy));
    const Sums all = sum(counts);
    made.requests = all.requests();
    made.hits = all.hits;
    made.compulsory = all.compulsory;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const bool prompt = calls_[i].phase == RoutingPhase::prompt;
      (prompt ? made.prompt_hits : made.decode_hits) += counts[i].hits;
      (prompt ? made.prompt_misses : made.decode_misses) += counts[i].misses;
    }
    made.hit_rate = rate(all.hits, all.requests());
    const Sums warm = sum(std::span(counts).subspan(warm_));
    made.warm_hit_rate = rate(warm.hits, warm.requests());
    made.warm_compulsory_rate = rate(warm.compulsory, warm.requests());
    MILLRACE_ASSIGN(const auto control, counts_of(shuffled_, plan, policy));
    const Sums shuffled = sum(std::span(control).subspan(shuffled_warm_));
    made.shuffled_hit_rate = rate(shuffled.hits, shuffled.requests());
    const bool guesses = options_.ahead > 0 && options_.drive_bytes_per_second > 0;
    // A run that guesses keeps some slots for that, if the plan has any to spare.
    const SlotPlan kept = guesses ? without_spares(plan, pool_.top_k) : plan;
    made.priced_slots = kept.slots;
    if (kept.slots == plan.slots) {
      price(counts, made);
    } else {
      MILLRACE_ASSIGN(const auto fewer, counts_of(calls_, kept, policy));
      price(fewer, made);
    }
    return made;
  }

 private:
  Result<std::vector<CallCounts>> counts_of(std::span<const RoutingCall> calls,
                                            const SlotPlan& plan, const std::string& name) const {
    MILLRACE_ASSIGN(auto policy, policy_of(name, calls));
    return replay_calls(calls, pool_.layout, plan, pool_.top_k, std::move(policy));
  }

  // Seconds of one layer's call; guesses are for single tokens only, and not for the first layer.
  double call_seconds(const RoutingCall& call, const CallCounts& counts, double layers) const {
    const double share = options_.compute_seconds / layers * call.tokens;
    LayerCost cost;
    cost.expert_seconds = share * options_.expert_share;
    cost.trunk_seconds = share * std::max(0.0, 1 - options_.expert_share - options_.head_share);
    cost.one_expert_seconds =
        cost.expert_seconds / std::max<double>(1, static_cast<double>(call.experts.size()));
    cost.read_seconds = static_cast<double>(counts.miss_bytes) / options_.drive_bytes_per_second;
    cost.latency_seconds = options_.latency_seconds;
    const bool guessed =
        call.phase == RoutingPhase::generation && call.layer != calls_.front().layer;
    return layer_seconds(cost, guessed ? options_.ahead : 0);
  }

  void price(std::span<const CallCounts> counts, ReplayRow& made) const {
    std::vector<bool> seen(pool_.layout.layers(), false);
    for (const RoutingCall& call : calls_) seen[call.layer] = true;
    const auto layers = static_cast<double>(std::count(seen.begin(), seen.end(), true));
    double seconds = 0;
    double tokens_in_layers = 0;
    std::uint64_t bytes = 0, reading_calls = 0;
    for (std::size_t i = warm_; i < calls_.size(); ++i) {
      if (only_decode_ && calls_[i].phase == RoutingPhase::prompt) continue;
      tokens_in_layers += calls_[i].tokens;
      bytes += counts[i].miss_bytes;
      reading_calls += counts[i].misses > 0 ? 1 : 0;
      if (options_.drive_bytes_per_second > 0)
        seconds += call_seconds(calls_[i], counts[i], layers);
    }
    const double tokens = tokens_in_layers / layers;
    if (tokens == 0) return;
    made.bytes_per_token = static_cast<double>(bytes) / tokens;
    if (options_.drive_bytes_per_second <= 0) return;
    const double read = made.bytes_per_token / options_.drive_bytes_per_second;
    const double compute = options_.compute_seconds;
    const auto rate = [](double time) { return time > 0 ? 1 / time : 0.0; };
    const double waits = static_cast<double>(reading_calls) / tokens * options_.latency_seconds;
    made.tokens_per_second_low = rate(waits + read + compute);
    made.tokens_per_second = rate(seconds / tokens + compute * options_.head_share);
    made.tokens_per_second_high = rate(std::max(read, compute));
  }

  const ReplayOptions& options_;
  Pool pool_;
  std::vector<RoutingCall> calls_, shuffled_;
  std::size_t warm_, shuffled_warm_;
  bool only_decode_ = false;
};

// Belady and LRU first: the others are measured against them.
std::vector<std::string> policies_of(const ReplayOptions& options) {
  std::vector<std::string> names = {"belady", "lru"};
  const auto add = [&](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  };
  for (const std::string& name : options.policies) add(name);
  if (options.policies.empty())
    for (const char* const name : eviction_policy_names()) add(name);
  return names;
}

// Times and rates that are numbers, and not beyond what any machine has.
Status check_pricing(const ReplayOptions& options) {
  constexpr double seconds_max = 1e6;
  const double rate = options.drive_bytes_per_second, seconds = options.compute_seconds;
  if (rate != 0 && !(rate >= replay_rate_min && rate <= replay_rate_max))
    return out_of_range("--drive-gbps", fmt::format("{:g}", rate / 1e9),
                        fmt::format("{:g} to {:g}", replay_rate_min / 1e9, replay_rate_max / 1e9));
  if (!(seconds >= 0 && seconds <= seconds_max))
    return out_of_range("--compute-ms", fmt::format("{:g}", seconds * 1e3),
                        fmt::format("0 to {:g}", seconds_max * 1e3));
  return {};
}

Status check_options(const ReplayOptions& options) {
  if (options.capacities.empty())
    return Error{ErrorCode::usage, "--capacity: give at least one, as 5%,10%,25%"};
  for (const SizeSpec& size : options.capacities)
    if ((size.kind == SizeSpec::Kind::percent && size.percent <= 0) ||
        (size.kind == SizeSpec::Kind::bytes && size.bytes == 0))
      return Error{ErrorCode::usage, "--capacity 0: a cache without slots holds nothing"};
  if (!(options.warmup >= 0 && options.warmup < 1))
    return out_of_range("--warmup", fmt::format("{}", options.warmup), "0 to less than 1");
  if (!(options.ahead >= 0 && options.ahead <= 1))
    return out_of_range("--ahead", fmt::format("{}", options.ahead), "0 to 1");
  MILLRACE_TRY(check_range("--experts", options.experts, 0, limits::experts_max));
  MILLRACE_TRY(check_range("--expert-bytes", options.expert_bytes, 0, limits::segment_bytes_max));
  MILLRACE_TRY(check_pricing(options));
  if (!(options.expert_share >= 0 && options.expert_share <= 1))
    return out_of_range("--expert-share", fmt::format("{}", options.expert_share), "0 to 1");
  for (const std::string& name : options.policies)
    if (name != "belady") MILLRACE_TRY(make_eviction_policy(name));
  return {};
}

}  // namespace

Result<ModelFigures> read_model_figures(const std::string& path) {
  MILLRACE_ASSIGN(OpenedModel model, open_model(path));
  return std::move(model.figures);
}

Status check_trace_of_model(const RoutingRecord& record, const std::string& trace_path,
                            const ModelFigures& model) {
  const RoutingTraceHeader& trace = record.header;
  const auto differ = [&](const std::string& of_trace, const std::string& of_model) {
    return Error{ErrorCode::usage,
                 fmt::format("{} is a trace of another model than {}: {}, the model {}", trace_path,
                             model.path, of_trace, of_model)};
  };
  if (trace.architecture != "unknown" && trace.architecture != model.architecture)
    return differ("architecture " + std::string(printable(trace.architecture)),
                  "is " + model.architecture);
  if (record.sized ? trace.layers != model.layers : trace.layers > model.layers)
    return differ(counted(trace.layers, "layer"), fmt::format("has {}", model.layers));
  if (record.sized ? trace.experts != model.experts : trace.experts > model.experts)
    return differ(counted(trace.experts, "expert"), fmt::format("has {}", model.experts));
  if (trace.experts_used > model.experts_used)
    return differ(counted(trace.experts_used, "expert", "a token"),
                  fmt::format("uses {}", model.experts_used));
  for (const RoutingRow& row : record.rows)
    if (!model.routed[row.layer])
      return differ(fmt::format("experts in layer {}", row.layer), "has a dense one there");
  return {};
}

Result<ReplayStudy> study_replay(const ReplayOptions& options) {
  MILLRACE_TRY(check_options(options));
  MILLRACE_ASSIGN(const RoutingRecord record, read_routing(options.trace_path, options.cancel));
  if (const std::string lacking = incomplete_end(record); !lacking.empty())
    log_warning(options.trace_path + ": " + lacking);
  ReplayStudy made;
  made.trace = record.header;
  made.priced = options.drive_bytes_per_second > 0;
  made.priced_by = options.priced_by;
  MILLRACE_ASSIGN(Pool pool, open_pool(options, record, made.note));
  made.pool_bytes = pool.bytes;
  const Study study(options, record, std::move(pool));
  made.tokens = study.tokens();
  made.warm_tokens = study.warm_tokens();
  const std::vector<std::string> names = policies_of(options);
  for (const SizeSpec& capacity : options.capacities) {
    if (const Status fits = study.fits(capacity); !fits) {
      const bool last = &capacity == &options.capacities.back();
      if (!options.skip_small || (last && made.rows.empty())) return fits.error();
      made.note += fmt::format("{}{} is left out: a token's experts do not fit into it",
                               made.note.empty() ? "" : "; ", text_of(capacity));
      continue;
    }
    const std::size_t first = made.rows.size();
    for (const std::string& name : names) {
      if (options.cancel != nullptr && options.cancel->load())
        return Error{ErrorCode::cancelled, "interrupted"};
      MILLRACE_ASSIGN(ReplayRow row, study.row(name, capacity));
      made.rows.push_back(std::move(row));
    }
    const double belady = made.rows[first].warm_hit_rate;
    const double lru = made.rows[first + 1].warm_hit_rate;
    for (std::size_t i = first; i < made.rows.size(); ++i)
      made.rows[i].recovered =
          belady > lru ? (made.rows[i].warm_hit_rate - lru) / (belady - lru) : 0;
  }
  return made;
}

}  // namespace millrace
