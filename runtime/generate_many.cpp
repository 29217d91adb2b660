#include "runtime/generate_many.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "runtime/base/clock.h"
#include "runtime/counters.h"
#include "runtime/prompt_sharing.h"
#include "runtime/sequence_run.h"

namespace millrace {

namespace {

// Tokens that have to be saved for a step more: about as many as one passing over the weights takes
// as long as, where these are in memory (a judgement, not measured). Where they are read from a
// drive, a part of a prompt.
constexpr std::size_t saved_least_in_memory = 32;

std::size_t saved_least(const Plan& plan) {
  const bool reads = plan.trunk.ring_bytes > 0 || (plan.slots.slots > 0 && !plan.slots.complete);
  return reads ? std::max<std::size_t>(plan.batch_tokens, saved_least_in_memory)
               : saved_least_in_memory;
}

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
  bool taken = false;      // its logits, in this step
  std::size_t tokens = 0;  // that it takes in this step
  Runner* twin = nullptr;  // that it waits for, in this step
  std::uint64_t tokens_taken_over = 0;
  Status status;  // of its own

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
      MILLRACE_ASSIGN(Session session, take_session(options_[next_].prompt));
      auto runner = std::make_unique<Runner>(next_, text_);
      runner->tokens_taken_over = session.tokens().size();
      MILLRACE_ASSIGN(runner->run, SequenceRun::create(engine_, options_[next_], runner->piece,
                                                       std::move(session)));
      runner->begin_ns = system_clock().now_ns();
      alive_.push_back(std::move(runner));
      ++next_;
    }
    return {};
  }

  // One that is free, with as much of the prompt as it can go on from: the one that has most of it.
  Result<Session> take_session(std::span<const TokenId> prompt) {
    if (idle_.empty()) return engine_.new_session();
    auto best = idle_.begin();
    std::size_t most = 0;
    for (auto session = idle_.begin(); session != idle_.end(); ++session) {
      const std::size_t shared = usable_tokens(prompt, *session);
      if (shared >= most) {
        best = session;
        most = shared;
      }
    }
    Session taken = std::move(*best);
    idle_.erase(best);
    taken.take_over(taken, most);
    return taken;
  }

  static std::size_t usable_tokens(std::span<const TokenId> prompt, const Session& session) {
    const std::size_t shared = shared_tokens(prompt, session.tokens());
    return session.keeps(shared) ? shared : 0;
  }

  // What a prompt can take over from any other sequence's session, it takes.
  void take_beginning(Runner& runner) {
    Session& own = runner.run->session();
    const Session* best = nullptr;
    std::size_t most = own.tokens().size();
    const auto look = [&](const Session& session) {
      const std::size_t shared = usable_tokens(runner.run->prompt(), session);
      if (shared <= most) return;
      best = &session;
      most = shared;
    };
    for (const auto& other : alive_)
      if (other.get() != &runner) look(other->run->session());
    for (const Session& session : idle_) look(session);
    if (best == nullptr) return;
    runner.tokens_taken_over += most - own.tokens().size();
    own.take_over(*best, most);
  }

  // How many tokens each takes in the next step.
  void plan_step() {
    prompts_.clear();
    beginning_.clear();
    for (const auto& runner : alive_) {
      runner->taken = false;
      runner->twin = nullptr;
      runner->tokens = 1;
      if (runner->run->started()) continue;
      take_beginning(*runner);
      prompts_.push_back({runner->run->prompt(), runner->run->session().tokens().size()});
      beginning_.push_back(runner.get());
    }
    turns_.resize(prompts_.size());
    plan_turns(prompts_, saved_least(engine_.plan()), turns_);
    for (std::size_t i = 0; i < turns_.size(); ++i) {
      beginning_[i]->tokens = turns_[i].tokens;
      if (turns_[i].twin) beginning_[i]->twin = beginning_[turns_[i].waits_for];
    }
  }

  // All that are alive take their next tokens, but for those that wait.
  Status step() {
    if (alive_.empty()) return {};
    plan_step();
    tokens_.clear();
    stepping_.clear();
    std::size_t count = 0;
    for (const auto& runner : alive_) {
      if (runner->tokens == 0) continue;
      count += runner->tokens;
      stepping_.push_back(runner.get());
      tokens_.push_back({&runner->run->session(), runner->run->pending().first(runner->tokens)});
    }
    PhaseReport& phase = beginning_.empty() ? result_.decode : result_.prompt;
    const EngineCounters before = engine_.counters();
    Status status = engine_.process_together(tokens_, [&](std::size_t i, const float* row) {
      if (ends_pending(i)) take(*stepping_[i], row);
    });
    // Bad numbers are those of one: the others go on without it.
    if (!status && status.error().code == ErrorCode::format) status = step_apart(status.error());
    if (status) copy_twins();
    phase.counters = engine_.counters() - (before - phase.counters);  // added up
    phase.tokens += count;
    ++(beginning_.empty() ? result_.decode_steps : result_.prompt_steps);
    return status;
  }

  // Whether what goes through of a sequence is all that is pending. While its logits are handed out
  // its session does not have the tokens yet.
  bool ends_pending(std::size_t i) const {
    const std::span<const TokenId> pending = stepping_[i]->run->pending();
    return tokens_[i].tokens.data() + tokens_[i].tokens.size() == pending.data() + pending.size();
  }

  Status step_apart(const Error& error) {
    const bool one = stepping_.size() == 1;
    for (Runner* const runner : stepping_) {
      if (runner->taken) continue;
      if (one || !runner->run->resumable()) {
        runner->status = error;
        continue;
      }
      const Status alone =
          engine_.process(runner->run->session(), runner->run->pending(), LogitsWanted::last,
                          [&](std::size_t, const float* row) { take(*runner, row); });
      if (!alone && alone.error().code != ErrorCode::format) return alone;
      if (!alone) runner->status = alone;
    }
    return {};
  }

  // The logits of a sequence, and of those that wait for the same ones.
  void take(Runner& runner, const float* row) {
    take_own(runner, row);
    for (Runner* const other : beginning_)
      if (other->twin == &runner) take_own(*other, row);
  }

  void take_own(Runner& runner, const float* row) {
    runner.taken = true;
    runner.status = runner.run->take({row, engine_.spec().hparams.vocabulary});
    if (runner.first_ns == 0) runner.first_ns = system_clock().now_ns();
  }

  // Those who took another one's logits take its session over, too.
  void copy_twins() {
    for (Runner* const runner : beginning_) {
      if (runner->twin == nullptr || !runner->taken) continue;
      Session& own = runner->run->session();
      const std::size_t count = runner->run->prompt().size();
      MILLRACE_CHECK(runner->twin->run->session().keeps(count));
      runner->tokens_taken_over += count - own.tokens().size();
      own.take_over(runner->twin->run->session(), count);
    }
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
    result.tokens_taken_over = runner.tokens_taken_over;
    result.decode.tokens = result.ids.empty() ? 0 : result.ids.size() - 1;
    result.decode.seconds = seconds_between(first, now);
    idle_.push_back(runner.run->release());
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
  // Of the step: who takes part, and with what; whose prompt has not gone through, and its turn.
  std::vector<Runner*> stepping_, beginning_;
  std::vector<SequenceTokens> tokens_;
  std::vector<PromptPlace> prompts_;
  std::vector<PromptTurn> turns_;
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
  for (const GenerateResult& each : sequences) all.tokens_taken_over += each.tokens_taken_over;
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
