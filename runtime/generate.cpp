#include "runtime/generate.h"

#include <fmt/format.h>

#include <limits>
#include <memory>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/base/counted.h"
#include "runtime/base/log.h"
#include "runtime/counters.h"
#include "runtime/floor/floor_figures.h"
#include "runtime/routing_recorder.h"
#include "runtime/sequence_run.h"

namespace millrace {

const char* finish_reason_name(FinishReason reason) noexcept {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::error:
      return "error";
  }
  return "error";
}

namespace {

// One generation, step by step.
class Generation {
 public:
  Generation(Engine& engine, SequenceRun& run, std::uint32_t warmup_tokens)
      : engine_(engine), run_(run), warmup_tokens_(warmup_tokens) {}

  Status open_trace(const GenerateOptions& options) {
    MILLRACE_ASSIGN(trace_, RoutingRecorder::start(engine_, options.trace_path));
    trace_->begin_turn(0, options.prompt.size());
    return {};
  }

  GenerateResult run() {
    Status status = run_phases();
    if (status) status = engine_.check_files();
    if (status) keep_pace();
    const Status traced = trace_->finish();
    if (status) status = traced;
    GenerateResult result = run_.finish(std::move(status));
    result.prompt = std::move(prompt_);
    result.decode = std::move(decode_);
    return result;
  }

 private:
  // Measures one phase around `work`. Its seconds are the sum of what the activity clock tells, so
  // that compute, stalled and other add up to them.
  template <class Work>
  Status timed(PhaseReport& phase, Work work) {
    const EngineCounters before = engine_.counters();
    Status status = work();
    phase.counters = engine_.counters() - before;
    for (const EngineCounters& measuring : measuring_) leave_out(phase.counters, measuring);
    measuring_.clear();
    phase.set_seconds();
    return status;
  }

  Status run_phases() {
    const std::size_t prompt_tokens = run_.pending().size();
    MILLRACE_TRY(timed(prompt_, [&] { return step(); }));
    prompt_.tokens = prompt_tokens;
    decode_start_ns_ = system_clock().now_ns();
    PhaseReport warmup;
    if (warmup_tokens_ > 0)
      MILLRACE_TRY(timed(warmup, [&] { return decode(warmup, warmup_tokens_); }));
    return timed(decode_,
                 [&] { return decode(decode_, std::numeric_limits<std::uint64_t>::max()); });
  }

  Status decode(PhaseReport& phase, std::uint64_t tokens_max) {
    while (!run_.finished() && phase.tokens < tokens_max) {
      MILLRACE_TRY(step());
      ++phase.tokens;
      measure_floor();
    }
    return {};
  }

  // Between two tokens, when it is due; the phase does not count it.
  void measure_floor() {
    RunFloor* floor = engine_.run_floor();
    if (floor == nullptr ||
        !floor->due(system_clock().now_ns() - decode_start_ns_, run_.finished()))
      return;
    const EngineCounters before = engine_.counters();
    floor->measure();
    measuring_.push_back(engine_.counters() - before);
  }

  // What decoding taught about computing; a run whose lesson is lost has still done its work.
  void keep_pace() {
    if (decode_.tokens < pace_tokens_min) return;
    const auto compute_ns = static_cast<double>(decode_.counters.times.compute_ns);
    const FloorFigures floor = floor_figures(engine_, decode_, 0);
    const Status kept = engine_.keep_pace(
        {.compute_seconds = compute_ns * 1e-9 / static_cast<double>(decode_.tokens),
         .drive_bytes_per_second = floor.measured.samples > 0 ? floor.rate : 0});
    if (!kept) log_info("the pace is not kept for later plans: " + kept.error().what);
  }

  Status step() {
    Status taken;
    MILLRACE_TRY(engine_.process(run_.session(), run_.pending(), LogitsWanted::last,
                                 [&](std::size_t, const float* row) {
                                   taken = run_.take({row, engine_.spec().hparams.vocabulary});
                                 }));
    return taken;
  }

  Engine& engine_;
  SequenceRun& run_;
  std::unique_ptr<RoutingRecorder> trace_;
  std::uint32_t warmup_tokens_;
  std::uint64_t decode_start_ns_ = 0;
  std::vector<EngineCounters> measuring_;  // of the floor, in the phase that runs
  PhaseReport prompt_, decode_;
};

}  // namespace

Status check_options(const GenerateOptions& options) {
  if (options.tokens_max == 0) return out_of_range("-n", "0", "1 or more");
  constexpr std::size_t any_vocabulary = 1;  // only biases are held against it
  SamplingOptions sampling = options.sampling;
  sampling.biases.clear();
  MILLRACE_ASSIGN(const Sampler sampler, Sampler::create(std::move(sampling), any_vocabulary));
  MILLRACE_ASSIGN(const StopStrings stop, StopStrings::create(options.stop));
  return {};
}

Result<std::vector<TokenId>> encode_prompt(const Engine& engine, const std::string& text) {
  MILLRACE_ASSIGN(std::vector<TokenId> ids,
                  engine.tokenizer().encode(text, {.parse_special = false, .add_bos_eos = true}));
  const auto& special = engine.tokenizer().special();
  if (special.add_eos && special.eos && ids.size() > 1 && ids.back() == *special.eos)
    ids.pop_back();
  return ids;
}

Status check_prompt(const Engine& engine, std::span<const TokenId> prompt) {
  if (prompt.empty())
    return Error{ErrorCode::usage, "the prompt is empty (give text with -p or -f)"};
  const std::uint32_t context = engine.plan().context;
  if (prompt.size() > context)
    return Error{ErrorCode::usage,
                 fmt::format("the prompt has {} tokens, the context holds {} (raise -c)",
                             prompt.size(), context)};
  return engine.check_tokens(prompt, context);
}

Result<GenerateResult> generate(Engine& engine, const GenerateOptions& options, TextSink text) {
  MILLRACE_TRY(check_options(options));
  MILLRACE_TRY(check_prompt(engine, options.prompt));
  MILLRACE_TRY(RoutingRecorder::check(engine, options.trace_path));  // before a file is begun
  MILLRACE_ASSIGN(Session session, engine.new_session());
  MILLRACE_ASSIGN(const auto run, SequenceRun::create(engine, options, text, std::move(session)));
  Generation generation(engine, *run, options.warmup_tokens);
  MILLRACE_TRY(generation.open_trace(options));
  if (!options.echo.empty()) text(options.echo);
  return generation.run();
}

}  // namespace millrace
