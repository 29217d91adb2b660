#include "runtime/generate_many.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/counters.h"
#include "runtime/sequence_run.h"

namespace millrace {

namespace {

double seconds_between(std::uint64_t from_ns, std::uint64_t to_ns) {
  return static_cast<double>(to_ns - from_ns) * 1e-9;
}

// A sequence that is under way.
struct Runner {
  std::size_t index;
  ManyTextSink text;
  struct Piece {
    Runner& owner;
    void operator()(std::string_view piece) const { owner.text(owner.index, piece); }
  };
  Piece piece{*this};
  std::unique_ptr<SequenceRun> run;
  std::uint64_t begin_ns = 0, first_ns = 0;
  bool taken = false;  // its logits, in this step
  Status status;       // of its own

  Runner(std::size_t index_, ManyTextSink text_) : index(index_), text(text_) {}
};

class ManyGeneration {
 public:
  ManyGeneration(Engine& engine, std::span<const GenerateOptions> options, ManyTextSink text)
      : engine_(engine), options_(options), text_(text) {
    result_.sequences.resize(options.size());
    tokens_.reserve(engine.plan().sequences);
  }

  Result<ManyResult> run() {
    MILLRACE_TRY(admit());
    start_ns_ = system_clock().now_ns();
    Status status;
    while (status && !alive_.empty()) {
      end_cancelled();
      status = step();
      end_finished();
      if (status) status = admit();
      measure_floor();
    }
    while (!alive_.empty()) end(alive_.size() - 1, status);
    if (!status) {
      tell(next_, status.error());  // those that had not begun
    } else if (const Status files = engine_.check_files(); !files) {
      tell(0, files.error());
    }
    result_.prompt.set_seconds();
    result_.decode.set_seconds();
    return std::move(result_);
  }

 private:
  // Sequences begin as long as there is room.
  Status admit() {
    while (next_ < options_.size() && alive_.size() < engine_.plan().sequences) {
      if (idle_.empty()) {
        MILLRACE_ASSIGN(Session made, engine_.new_session());
        idle_.push_back(std::move(made));
      }
      auto runner = std::make_unique<Runner>(next_, text_);
      MILLRACE_ASSIGN(runner->run, SequenceRun::create(engine_, options_[next_], runner->piece,
                                                       std::move(idle_.back())));
      idle_.pop_back();
      runner->begin_ns = system_clock().now_ns();
      alive_.push_back(std::move(runner));
      ++next_;
    }
    return {};
  }

  // All that are alive take their next tokens.
  Status step() {
    if (alive_.empty()) return {};
    tokens_.clear();
    std::size_t count = 0;
    bool prompts = false;
    for (const auto& runner : alive_) {
      const std::span<const TokenId> pending = runner->run->pending();
      runner->taken = false;
      prompts |= !runner->run->started();
      count += pending.size();
      tokens_.push_back({&runner->run->session(), pending});
    }
    PhaseReport& phase = prompts ? result_.prompt : result_.decode;
    const EngineCounters before = engine_.counters();
    Status status = engine_.process_together(
        tokens_, [&](std::size_t i, const float* row) { take(*alive_[i], row); });
    // Bad numbers are those of one: the others go on without it.
    if (!status && status.error().code == ErrorCode::format) status = step_apart(status.error());
    phase.counters = engine_.counters() - (before - phase.counters);  // added up
    phase.tokens += count;
    ++(prompts ? result_.prompt_steps : result_.decode_steps);
    return status;
  }

  Status step_apart(const Error& error) {
    for (std::size_t i = 0; i < alive_.size(); ++i) {
      Runner& runner = *alive_[i];
      if (runner.taken) continue;
      if (alive_.size() == 1 || !runner.run->resumable()) {
        runner.status = error;
        continue;
      }
      const Status alone =
          engine_.process(runner.run->session(), tokens_[i].tokens, LogitsWanted::last,
                          [&](std::size_t, const float* row) { take(runner, row); });
      if (!alone && alone.error().code != ErrorCode::format) return alone;
      if (!alone) runner.status = alone;
    }
    return {};
  }

  void take(Runner& runner, const float* row) {
    runner.taken = true;
    runner.status = runner.run->take({row, engine_.spec().hparams.vocabulary});
    if (runner.first_ns == 0) runner.first_ns = system_clock().now_ns();
  }

  void end_finished() {
    for (std::size_t i = alive_.size(); i-- > 0;)
      if (!alive_[i]->status || alive_[i]->run->finished()) end(i, alive_[i]->status);
  }

  void end_cancelled() {
    for (std::size_t i = alive_.size(); i-- > 0;) {
      const std::atomic<bool>* const cancel = options_[alive_[i]->index].cancel;
      if (cancel != nullptr && cancel->load())
        end(i, Error{ErrorCode::cancelled, "this sequence was cancelled"});
    }
  }

  void end(std::size_t at, Status status) {
    Runner& runner = *alive_[at];
    const std::uint64_t now = system_clock().now_ns();
    const std::uint64_t first = runner.first_ns == 0 ? now : runner.first_ns;
    GenerateResult& result = result_.sequences[runner.index];
    result = runner.run->finish(std::move(status));
    result.prompt.tokens = options_[runner.index].prompt.size();
    result.prompt.seconds = seconds_between(runner.begin_ns, first);
    result.decode.tokens = result.ids.empty() ? 0 : result.ids.size() - 1;
    result.decode.seconds = seconds_between(first, now);
    idle_.push_back(runner.run->release());
    idle_.back().clear();
    alive_.erase(alive_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  // An error that is everybody's from `first` on, but for those who had one before.
  void tell(std::size_t first, const Error& error) {
    for (GenerateResult& result : std::span(result_.sequences).subspan(first)) {
      if (result.error) continue;
      result.finish =
          error.code == ErrorCode::cancelled ? FinishReason::cancelled : FinishReason::error;
      result.error = error;
    }
  }

  // Between two steps, when it is due; no phase counts it.
  void measure_floor() {
    RunFloor* const floor = engine_.run_floor();
    if (floor != nullptr && floor->due(system_clock().now_ns() - start_ns_, alive_.empty()))
      floor->measure();
  }

  Engine& engine_;
  std::span<const GenerateOptions> options_;
  ManyTextSink text_;
  ManyResult result_;
  std::size_t next_ = 0;  // that has not begun
  std::vector<std::unique_ptr<Runner>> alive_;
  std::vector<SequenceTokens> tokens_;  // of the step, as alive_
  std::vector<Session> idle_;
  std::uint64_t start_ns_ = 0;
};

Status check_many(const Engine& engine, std::span<const GenerateOptions> sequences) {
  if (sequences.empty()) return Error{ErrorCode::usage, "there is no prompt"};
  for (const GenerateOptions& options : sequences) {
    if (!options.trace_path.empty() || !options.state_path.empty())
      return Error{ErrorCode::usage, "--trace and --dump-state record one sequence, not several"};
    MILLRACE_TRY(check_options(options));
    MILLRACE_TRY(check_prompt(engine, options.prompt));
  }
  return {};
}

}  // namespace

GenerateResult ManyResult::summary() const {
  GenerateResult all;
  all.prompt = prompt;
  all.decode = decode;
  // FinishReason goes from good to bad: stop, length, cancelled, error.
  const auto worst = std::max_element(
      sequences.begin(), sequences.end(),
      [](const GenerateResult& a, const GenerateResult& b) { return a.finish < b.finish; });
  if (worst == sequences.end()) return all;
  all.finish = worst->finish;
  all.error = worst->error;
  all.seed = sequences.front().seed;
  return all;
}

Result<ManyResult> generate_many(Engine& engine, std::span<const GenerateOptions> sequences,
                                 ManyTextSink text) {
  MILLRACE_TRY(check_many(engine, sequences));
  return ManyGeneration(engine, sequences, text).run();
}

}  // namespace millrace
