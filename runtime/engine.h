// Engine: a model, opened and ready to run. create() is the table of contents of a start; it owns
// every part and the order in which they go.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"
#include "io/pinned_memory.h"
#include "io/read_scheduler.h"
#include "kernels/kernel_table.h"
#include "model/model_spec.h"
#include "model/tokenizer/tokenizer.h"
#include "model/trunk_store.h"
#include "prefetch/loader.h"
#include "prefetch/prefetcher.h"
#include "runtime/base/activity.h"
#include "runtime/config.h"
#include "runtime/estimate/known_pace.h"
#include "runtime/estimate/predict.h"
#include "runtime/floor/run_floor.h"
#include "runtime/graph/arena.h"
#include "runtime/guard/pool_guard.h"
#include "runtime/pipeline/batch_walk.h"
#include "runtime/planner.h"
#include "runtime/progress.h"
#include "runtime/run_drives.h"
#include "runtime/session.h"

namespace millrace {

// Counters since create(); subtract snapshots for a phase.
struct EngineCounters {
  ActivityTimes times;
  LoaderStats experts;
  ReadStats reads;
  std::uint64_t small_bytes = 0;  // headers, vectors, probes: read outside the scheduler
};

// Of which tokens of process() the logits are handed out.
enum class LogitsWanted : std::uint8_t { none, last, all };

// What one sequence takes in a step that it shares with others.
struct SequenceTokens {
  Session* session;
  std::span<const TokenId> tokens;  // not empty
};

class Engine;

// Asked once a model is known and planned (spec, tokenizer, plan) and nothing of it is in memory:
// an error here is told before the trunk has been read.
using ModelCheck = FunctionRef<Status(const Engine& engine, const Checkpoint& checkpoint)>;

class Engine {
 public:
  // Opens the model and reads the trunk. `cancel` and `progress` must outlive the engine; cancel
  // may be set at any time (Ctrl-C). `check` may be null.
  static Result<std::unique_ptr<Engine>> create(const EngineConfig& config, ProgressLine& progress,
                                                const std::atomic<bool>& cancel,
                                                const ModelCheck* check = nullptr);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // `memory` error if its KV cache cannot be had. The plan holds room for --parallel of them.
  Result<Session> new_session();

  // Takes `tokens` through the model behind those that the session has, in parts of at most -ub.
  // `logits` gets (index in `tokens`, vocabulary floats), for the last or for all. `usage` error
  // past the context. On an error the session is as before, or empty where a sliding window or a
  // recurrent state has moved on.
  Status process(Session& session, std::span<const TokenId> tokens, LogitsWanted wanted,
                 FunctionRef<void(std::size_t, const float*)> logits);
  // Takes the tokens of several sequences through the model together: trunk and each expert are
  // read once for all of them (once per part of -ub tokens), and each sequence's logits are what
  // process() alone gives, bit by bit. `logits` gets (index in `sequences`, vocabulary floats) for
  // the last token of each. No session twice; at most Plan::sequences of them. Errors as process();
  // then a session whose logits were handed out has its tokens, the others are as before, or empty
  // where a sliding window or a recurrent state has moved on.
  Status process_together(std::span<const SequenceTokens> sequences,
                          FunctionRef<void(std::size_t, const float*)> logits);
  // `usage` error if there are more than `positions` of them or an id is outside the vocabulary:
  // what process() refuses, for asking beforehand.
  Status check_tokens(std::span<const TokenId> tokens, std::size_t positions) const;
  // `io` error if a file of the model or a copy of it was written to since it was opened; those
  // that failed because they were cut short are passed over. Asked at the end of a run.
  Status check_files() const;
  // As BatchWalk's.
  void set_routing_sink(const RoutingSink* sink) noexcept { walk_->set_routing_sink(sink); }

  void set_router_input_sink(const RouterInputSink* sink) noexcept {
    walk_->set_router_input_sink(sink);
  }

  const EngineConfig& config() const noexcept { return config_; }
  const ModelSpec& spec() const noexcept { return spec_; }
  const Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
  // `format` error if the file has no usable tokenizer (running by ids works without).
  Status require_tokenizer() const;
  const Plan& plan() const noexcept { return plan_; }
  const KernelTable& kernels() const noexcept { return *kernels_; }
  const ReadScheduler& reader() const noexcept { return *scheduler_; }
  // The drive behind the model's first file, then those of the mirrors.
  std::span<const RunDrive> drives() const noexcept { return drives_; }
  // Under which the model's routing is kept between runs (estimate/known_routing); empty: it is
  // not.
  const std::string& routing_key() const noexcept { return routing_key_; }
  // Keeps what computing a decoded token of this run took and what the drive gave, for later
  // predictions; what it gave when asked is added here. Nothing is done where none is made. `io`
  // error.
  Status keep_pace(PaceLesson lesson) const;
  // Tokens per second to expect, where much is streamed; nothing elsewhere.
  const std::optional<Prediction>& prediction() const noexcept { return prediction_; }
  // Where the floor of this run is measured; null where little is streamed.
  RunFloor* run_floor() noexcept { return run_floor_.get(); }
  const RunFloor* run_floor() const noexcept { return run_floor_.get(); }
  bool direct() const noexcept;  // all files with O_DIRECT
  std::string policy() const { return config_.policy; }
  const Prefetcher* prefetcher() const noexcept { return prefetcher_.get(); }  // null: off
  const PoolGuard* guard() const noexcept { return guard_.get(); }  // null: off, or no pool
  EngineCounters counters() const;
  PinnedMemoryStats memory() const { return memory_.stats(); }
  double load_seconds() const noexcept { return load_seconds_; }

 private:
  Engine(EngineConfig config, ProgressLine& progress, const std::atomic<bool>& cancel);
  Status open_model(const Checkpoint& checkpoint);
  Status open_mirrors(const Checkpoint& checkpoint, DirectMode direct);
  Status make_plan();
  Status look_up_drives();
  Status make_memory();
  Status predict_speed(const PlanInput& input);
  Status note_routing();
  double ask_drives();
  PaceKey pace_key() const;
  Status start_reading();
  Status load_trunk();
  Status build_pipeline();
  Status make_prefetcher();
  Status walk_part(std::size_t tokens, std::size_t wanted, std::size_t part, std::size_t parts,
                   bool shown, FunctionRef<void(std::size_t, const float*)> logits);

  EngineConfig config_;
  ProgressLine& progress_;
  const std::atomic<bool>& cancel_;
  mutable ActivityClock activity_;
  const KernelTable* kernels_ = nullptr;
  ModelSpec spec_;
  std::uint64_t metadata_bytes_ = 0;
  std::uint64_t probe_bytes_ = 0;      // what asking the drives read
  double asked_bytes_per_second_ = 0;  // and what they gave
  std::unique_ptr<Tokenizer> tokenizer_;
  Error tokenizer_error_{ErrorCode::format, {}};
  double load_seconds_ = 0;

  // In the order in which they depend on each other.
  std::vector<File> files_;  // of the model, then of the mirrors
  std::vector<const File*> file_list_;
  std::vector<std::uint32_t> block_bytes_;  // of each of the model's, the largest of all its copies
  std::uint64_t pool_head_bytes_ = 0;       // of a packed pool
  std::vector<RunDrive> drives_;
  SlotLayout layout_;
  std::optional<ComputeSpeed> compute_speed_;  // as measured before the run
  std::optional<Prediction> prediction_;
  std::string routing_key_;
  std::vector<SliceDigests> digests_;  // of a packed pool, by SlotLayout::index; empty: none
  Plan plan_;
  PinnedMemory memory_;
  std::vector<PinnedBlock> slots_;
  std::vector<PinnedBlock> measuring_;
  std::unique_ptr<ReadScheduler> scheduler_;
  std::unique_ptr<RunFloor> run_floor_;
  std::unique_ptr<TrunkStore> trunk_;
  std::unique_ptr<Loader> loader_;
  std::unique_ptr<Prefetcher> prefetcher_;
  std::unique_ptr<PoolGuard> guard_;
  std::unique_ptr<ComputeArena> arena_;
  std::unique_ptr<BatchWalk> walk_;
  std::vector<TokenPlace> places_;     // of the part that runs
  std::vector<std::uint32_t> enders_;  // the sequences that end in it, in the order of their tokens
};

}  // namespace millrace
