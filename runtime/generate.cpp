#include "runtime/generate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>

#include "model/sampling/stop_strings.h"
#include "model/tokenizer/text_stream.h"
#include "runtime/base/clock.h"
#include "runtime/base/hash.h"
#include "runtime/counters.h"
#include "runtime/routing_recorder.h"

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

// The state of a run: hash and dump of the logits that were sampled from.
class StateRecorder {
 public:
  static Result<StateRecorder> create(const std::string& path) {
    StateRecorder recorder;
    recorder.path_ = path;
    if (path.empty()) return recorder;
    recorder.file_.reset(std::fopen(path.c_str(), "wb"));
    if (recorder.file_ == nullptr)
      return Error{ErrorCode::io, fmt::format("--dump-state {}: {}", path, std::strerror(errno))};
    return recorder;
  }
  Status record(std::span<const float> logits) {
    hash_.update(logits.data(), logits.size_bytes());
    if (file_ != nullptr &&
        std::fwrite(logits.data(), sizeof(float), logits.size(), file_.get()) != logits.size())
      return failure();
    return {};
  }
  Status finish() {
    if (file_ != nullptr && std::fclose(file_.release()) != 0) return failure();
    return {};
  }
  std::uint64_t hash() const noexcept { return hash_.value(); }

 private:
  struct Close {
    void operator()(std::FILE* file) const noexcept { std::fclose(file); }
  };
  Error failure() const {
    return {ErrorCode::io, fmt::format("--dump-state {}: {}", path_, std::strerror(errno))};
  }
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  StreamHash hash_;
};

// One generation, step by step.
class Generation {
 public:
  Generation(Engine& engine, const GenerateOptions& options, TextSink text, Session session,
             Sampler sampler, StopStrings stop, StateRecorder state)
      : engine_(engine),
        options_(options),
        text_(text),
        session_(std::move(session)),
        sampler_(std::move(sampler)),
        stop_(std::move(stop)),
        state_(std::move(state)),
        stream_(engine.tokenizer()) {
    const std::size_t room = session_.context() - options.prompt.size() + 1;
    const std::size_t most = std::min<std::size_t>(options.tokens_max, room);
    history_.reserve(options.prompt.size() + most);
    history_ = options.prompt;
    result_.ids.reserve(most);
  }

  Status open_trace() {
    MILLRACE_ASSIGN(trace_, RoutingRecorder::start(engine_, options_.trace_path));
    trace_->begin_turn(0, options_.prompt.size());
    return {};
  }

  GenerateResult run() {
    Status status = run_phases();
    if (status) status = engine_.check_files();
    const Status traced = trace_->finish();
    if (status) status = traced;
    if (status) status = state_.finish();
    if (!status) {
      result_.finish = status.error().code == ErrorCode::cancelled ? FinishReason::cancelled
                                                                   : FinishReason::error;
      result_.error = std::move(status).error();
    }
    flush_text();
    result_.seed = sampler_.seed();
    result_.state_hash = state_.hash();
    return std::move(result_);
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
    const ActivityTimes& times = phase.counters.times;
    phase.seconds =
        static_cast<double>(times.compute_ns + times.stalled_ns + times.other_ns) * 1e-9;
    return status;
  }

  Status run_phases() {
    MILLRACE_TRY(timed(result_.prompt, [&] { return step(options_.prompt); }));
    result_.prompt.tokens = options_.prompt.size();
    decode_start_ns_ = system_clock().now_ns();
    PhaseReport warmup;
    if (options_.warmup_tokens > 0)
      MILLRACE_TRY(timed(warmup, [&] { return decode(options_.warmup_tokens, warmup); }));
    return timed(result_.decode, [&] { return decode(options_.tokens_max, result_.decode); });
  }

  Status decode(std::uint32_t tokens_max, PhaseReport& phase) {
    while (!finished_ && phase.tokens < tokens_max) {
      const TokenId last = history_.back();
      MILLRACE_TRY(step({&last, 1}));
      ++phase.tokens;
      measure_floor();
    }
    return {};
  }

  // Between two tokens, when it is due; the phase does not count it.
  void measure_floor() {
    RunFloor* floor = engine_.run_floor();
    if (floor == nullptr || !floor->due(system_clock().now_ns() - decode_start_ns_, finished_))
      return;
    const EngineCounters before = engine_.counters();
    floor->measure();
    measuring_.push_back(engine_.counters() - before);
  }

  // Takes tokens through the model, samples the next one, hands out its text, and decides whether
  // to go on.
  Status step(std::span<const TokenId> tokens) {
    Result<TokenId> sampled = TokenId{0};
    Status recorded;
    MILLRACE_TRY(
        engine_.process(session_, tokens, LogitsWanted::last, [&](std::size_t, const float* row) {
          const std::span<const float> logits(row, engine_.spec().hparams.vocabulary);
          recorded = state_.record(logits);
          sampled = sampler_.sample(logits, history_, history_.size());
        }));
    MILLRACE_TRY(std::move(recorded));
    MILLRACE_ASSIGN(const TokenId id, std::move(sampled));
    history_.push_back(id);
    result_.ids.push_back(id);
    if (!options_.ignore_eos && engine_.tokenizer().is_end_of_generation(id))
      return finish(FinishReason::stop);
    if (options_.control != nullptr && engine_.tokenizer().is_control(id)) {
      write(stop_.flush());  // a stop string does not reach over it
      (*options_.control)(engine_.tokenizer().token_text(id));
    }
    write(stop_.push(stream_.push(id)));
    if (stop_.stopped()) return finish(FinishReason::stop);
    if (result_.ids.size() >= options_.tokens_max || session_.room() == 0)
      return finish(FinishReason::length);
    return {};
  }

  Status finish(FinishReason reason) {
    finished_ = true;
    result_.finish = reason;
    return {};
  }

  void write(std::string_view text) {
    if (text.empty()) return;
    result_.text += text;
    text_(text);
  }

  void flush_text() {
    write(stop_.push(stream_.flush()));
    write(stop_.flush());
  }

  Engine& engine_;
  const GenerateOptions& options_;
  TextSink text_;
  Session session_;
  Sampler sampler_;
  StopStrings stop_;
  StateRecorder state_;
  TextStream stream_;
  std::unique_ptr<RoutingRecorder> trace_;
  std::vector<TokenId> history_;
  std::uint64_t decode_start_ns_ = 0;
  std::vector<EngineCounters> measuring_;  // of the floor, in the phase that runs
  GenerateResult result_;
  bool finished_ = false;
};

}  // namespace

Status check_options(const GenerateOptions& options) {
  if (options.tokens_max == 0)
    return Error{ErrorCode::usage, "-n 0: at least one token must be asked for"};
  constexpr std::size_t any_vocabulary = 1;  // only biases are held against it
  SamplingOptions sampling = options.sampling;
  sampling.biases.clear();
  MILLRACE_ASSIGN(const Sampler sampler, Sampler::create(std::move(sampling), any_vocabulary));
  MILLRACE_ASSIGN(const StopStrings stop, StopStrings::create(options.stop));
  return {};
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
  SamplingOptions sampling = options.sampling;
  if (options.ignore_eos)
    for (const TokenId id : engine.tokenizer().end_of_generation())
      sampling.biases.push_back({id, -std::numeric_limits<float>::infinity()});
  MILLRACE_ASSIGN(
      Sampler sampler,
      Sampler::create(std::move(sampling), engine.spec().hparams.vocabulary, engine.kernels().exp));
  MILLRACE_ASSIGN(StopStrings stop, StopStrings::create(options.stop));
  MILLRACE_ASSIGN(StateRecorder state, StateRecorder::create(options.state_path));
  MILLRACE_ASSIGN(Session session, engine.new_session());
  Generation generation(engine, options, text, std::move(session), std::move(sampler),
                        std::move(stop), std::move(state));
  MILLRACE_TRY(generation.open_trace());
  if (!options.echo.empty()) text(options.echo);
  return generation.run();
}

}  // namespace millrace
