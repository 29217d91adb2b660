#include "runtime/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "kernels/dispatch.h"
#include "model/format/open.h"
#include "prefetch/eviction_policy.h"
#include "runtime/base/clock.h"
#include "runtime/base/counted.h"
#include "runtime/base/log.h"
#include "runtime/direct_choice.h"
#include "runtime/estimate/choose_cache.h"
#include "runtime/estimate/known_routing.h"
#include "runtime/floor/drive_now.h"
#include "runtime/machine.h"
#include "runtime/mirror.h"
#include "runtime/pack.h"
#include "runtime/read_joins.h"
#include "runtime/together_cursor.h"

namespace millrace {

Engine::Engine(EngineConfig config, ProgressLine& progress, const std::atomic<bool>& cancel)
    : config_(std::move(config)), progress_(progress), cancel_(cancel), activity_(system_clock()) {}

Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(const EngineConfig& config, ProgressLine& progress,
                                               const std::atomic<bool>& cancel,
                                               const ModelCheck* check) {
  const std::uint64_t start_ns = system_clock().now_ns();
  std::unique_ptr<Engine> engine(new Engine(config, progress, cancel));
  MILLRACE_ASSIGN(engine->kernels_, choose_kernels(config.isa));
  {
    MILLRACE_ASSIGN(const Checkpoint checkpoint, open_checkpoint(config.model_path));
    MILLRACE_TRY(engine->open_model(checkpoint));  // shapes, tokenizer; files for reading
    MILLRACE_TRY(engine->look_up_drives());        // what they were measured to do
    MILLRACE_TRY(engine->make_plan());
    if (check != nullptr) MILLRACE_TRY((*check)(*engine, checkpoint));
  }
  MILLRACE_TRY(engine->make_memory());    // trunk and slots
  MILLRACE_TRY(engine->start_reading());  // the thread that owns the drives' queue
  MILLRACE_TRY(engine->load_trunk());
  MILLRACE_TRY(engine->build_pipeline());  // compute threads, graph, buffers
  engine->load_seconds_ = static_cast<double>(system_clock().now_ns() - start_ns) * 1e-9;
  return engine;
}

Status Engine::open_model(const Checkpoint& checkpoint) {
  MILLRACE_ASSIGN(spec_, read_model_spec(checkpoint));
  metadata_bytes_ = checkpoint.metadata_bytes();
  if (!config_.pool_path.empty()) {
    MILLRACE_ASSIGN(const PackIndex pack, use_pack(spec_, config_.pool_path));
    pool_head_bytes_ = pack.data_begin();
    for (LayerIndex layer = 0; layer < pack.layers.size(); ++layer)
      for (const PackedExpert& expert : pack.layers[layer])
        digests_.push_back(
            {expert.slices[0].digest, expert.slices[1].digest, expert.slices[2].digest});
  }
  auto tokenizer = Tokenizer::from_checkpoint(checkpoint);
  if (tokenizer) tokenizer_ = std::make_unique<Tokenizer>(*std::move(tokenizer));
  else tokenizer_error_ = std::move(tokenizer).error();
  const DirectMode direct = choose_direct(spec_, config_, read_machine());
  for (const std::string& path : spec_.files) {
    MILLRACE_ASSIGN(File file, File::open(path, direct));
    files_.push_back(std::move(file));
  }
  for (const File& file : files_) block_bytes_.push_back(file.block_bytes());
  MILLRACE_TRY(open_mirrors(checkpoint, direct));
  for (const File& file : files_) file_list_.push_back(&file);
  return {};
}

// Their files stand behind the model's.
Status Engine::open_mirrors(const Checkpoint& checkpoint, DirectMode direct) {
  const auto count = static_cast<std::uint32_t>(files_.size());
  // Named by what experts are read from: a packed pool stands behind the model's files.
  const std::string& read = config_.pool_path.empty() ? spec_.files.front() : spec_.files.back();
  RunDrive& own = drives_.emplace_back(RunDrive{.path = read, .files = {}});
  for (std::uint32_t i = 0; i < count; ++i) own.files.push_back(i);
  std::vector<Mirror> mirrors;
  if (!config_.mirror_paths.empty()) {
    std::vector<std::uint64_t> heads = head_bytes(checkpoint, files_);
    std::optional<std::uint32_t> pool;
    if (!config_.pool_path.empty()) pool = count - 1;
    if (pool) heads[*pool] = pool_head_bytes_;
    for (const std::string& path : config_.mirror_paths) {
      MILLRACE_ASSIGN(Mirror mirror, open_mirror(path, {files_, heads, pool}, direct));
      mirrors.push_back(std::move(mirror));
    }
  }
  for (Mirror& mirror : mirrors) {
    RunDrive drive{.path = mirror.path, .files = {}};
    drive.files.assign(count, ReadDrive::no_file);
    for (std::size_t i = 0; i < mirror.files.size(); ++i) {
      const std::uint32_t original = mirror.originals[i];
      block_bytes_[original] = std::max(block_bytes_[original], mirror.files[i].block_bytes());
      drive.files[original] = static_cast<std::uint32_t>(files_.size());
      files_.push_back(std::move(mirror.files[i]));
    }
    drives_.push_back(std::move(drive));
  }
  return {};
}

Status Engine::look_up_drives() {
  for (RunDrive& drive : drives_) {
    drive.expert_file = expert_file(drive.files, !config_.pool_path.empty());
    MILLRACE_TRY(look_up(drive, files_[drive.expert_file].path(), config_.profile_folder));
  }
  note_shared(drives_);
  layout_ = joined_layout(spec_.experts, block_bytes_,
                          [this](std::uint64_t bytes) { return drive_range(drives_, bytes); });
  ReadShape shape{.depth = config_.queue_depth,
                  .piece_bytes = config_.piece_bytes,
                  .read_bytes = layout_.largest_read_bytes()};
  for (const std::uint32_t block : block_bytes_)
    shape.block_bytes = std::max<std::uint64_t>(shape.block_bytes, block);
  for (RunDrive& drive : drives_) choose_pieces(drive, shape);
  return {};
}

Status Engine::make_plan() {
  const Machine machine = read_machine();
  const PlanInput input{spec_, layout_, block_bytes_, config_, machine};
  MILLRACE_ASSIGN(plan_, millrace::make_plan(input));
  MILLRACE_TRY(note_routing());
  MILLRACE_TRY(predict_speed(input));
  log_info(fmt::format("plan: {} in all: {}", format_bytes(plan_.total_bytes()), plan_.describe()));
  return {};
}

Status Engine::make_memory() {
  MILLRACE_ASSIGN(trunk_, TrunkStore::create(spec_, plan_.trunk, block_bytes_, memory_));
  MILLRACE_ASSIGN(slots_, allocate_slots(memory_, plan_.slots));
  if (plan_.measuring_bytes > 0) {
    MILLRACE_ASSIGN(measuring_, memory_.allocate(1, layout_.largest_read_bytes()));
  }
  const PinnedMemoryStats stats = memory_.stats();
  if (!stats.unlocked_reason.empty()) log_info("memory is not locked: " + stats.unlocked_reason);
  return {};
}

Status Engine::note_routing() {
  if (config_.profile_folder.empty() || spec_.hparams.experts == 0) return {};
  MILLRACE_ASSIGN(routing_key_, millrace::routing_key(spec_));
  return {};
}

// Takes half a second, so only where loading takes longer; before the memory is taken, since it
// needs some itself. Under the preset `auto` what comes out decides on the size of the cache.
Status Engine::predict_speed(const PlanInput& input) {
  if (plan_.measuring_bytes == 0) return {};
  const auto measured =
      measure_compute(*kernels_, expert_type(spec_), trunk_type(spec_), plan_.threads);
  if (!measured) {  // no room for it; the run itself has its plan
    log_info("no prediction: " + measured.error().what);
    return {};
  }
  compute_speed_ = *measured;
  const auto pace = load_pace(pace_key());
  const ComputeSpeed speed = paced(*compute_speed_, token_times(spec_, *compute_speed_), pace);
  const auto routing = load_routing(config_.profile_folder, routing_key_, spec_);
  const DriveRange drive =
      paced(drive_range(drives_, layout_.largest_read_bytes()), pace, ask_drives());
  MILLRACE_ASSIGN(PlannedRun run, choose_cache(input, std::move(plan_), {speed, drive, routing}));
  plan_ = std::move(run.plan);
  prediction_ = std::move(run.prediction);
  if (pace) prediction_->pace = *pace;
  log_info(fmt::format(
      "predicted: {:.2f} to {:.2f} tokens/s ({:.0f} to {:.0f} % hits, by {}; binding: "
      "{})",
      prediction_->low, prediction_->high, 100 * prediction_->hits.low,
      100 * prediction_->hits.high, prediction_->hits_from, binds_name(prediction_->binds)));
  return {};
}

// Bytes per second that the drives of the experts give right now, each asked alone; 0 if one of
// them does not say.
double Engine::ask_drives() {
  if (config_.reader_factory != nullptr) return 0;
  double all = 0;
  for (const RunDrive& drive : drives_) {
    const bool experts = config_.pool_path.empty() || drive.files.back() != ReadDrive::no_file;
    if (!experts || !drive.note.empty()) continue;  // noted: asked already, under another path
    const FloorFigure now = drive_now(files_[drive.expert_file], drive.piece_bytes, drive.depth);
    probe_bytes_ += now.bytes;
    if (now.bytes == 0) return 0;
    all += now.bytes_per_second();
  }
  asked_bytes_per_second_ = all;
  return all;
}

PaceKey Engine::pace_key() const {
  const std::string& folder = config_.profile_folder;
  return {routing_key_.empty() ? std::string_view() : folder, routing_key_, kernels_->name,
          plan_.threads, pace_drive(drives_, files_.front().direct())};
}

Status Engine::keep_pace(PaceLesson lesson) const {
  if (!compute_speed_) return {};
  // What the drive gives to settings that were made by hand is no rate for those of later plans.
  const bool by_profile =
      config_.queue_depth == 0 && config_.piece_bytes == 0 && config_.io == ReaderKind::automatic;
  if (!by_profile) lesson.drive_bytes_per_second = 0;
  lesson.asked_bytes_per_second = asked_bytes_per_second_;
  return save_pace(pace_key(), lesson);
}

Status Engine::start_reading() {
  ReadSchedulerOptions options;
  options.reader.kind = config_.io;
  options.reader.depth = drives_.front().depth;
  options.reader.files = file_list_;
  options.reader.buffers = memory_.segments();
  options.piece_bytes = drives_.front().piece_bytes;
  if (drives_.size() > 1) options.drives = read_drives(drives_);
  options.stripe = config_.stripe;
  if (config_.reader_factory == nullptr) {
    MILLRACE_ASSIGN(scheduler_, ReadScheduler::start(options));
  } else {
    MILLRACE_ASSIGN(scheduler_, ReadScheduler::start_with(options, config_.reader_factory,
                                                          config_.reader_context));
  }
  if (!measuring_.empty() && !plan_.slots.complete)
    run_floor_ = std::make_unique<RunFloor>(*scheduler_, layout_, measuring_.front());
  return {};
}

Status Engine::load_trunk() {
  return trunk_->load(
      *scheduler_, files_, *kernels_, activity_, [&](std::uint64_t done, std::uint64_t all) {
        progress_.show(
            "reading the trunk",
            static_cast<double>(done) / static_cast<double>(std::max<std::uint64_t>(1, all)),
            format_bytes(done) + " of " + format_bytes(all));
        if (done == all) progress_.clear();
        return !cancel_.load();
      });
}

Status Engine::build_pipeline() {
  if (plan_.slots.slots > 0) {
    const std::uint32_t spares =
        config_.prefetch == "off" ? 0 : spare_slots_wanted(spec_.hparams.experts_used);
    auto policy = make_eviction_policy(config_.policy);
    MILLRACE_CHECK(policy.has_value());  // the name was checked with the flags
    loader_ = std::make_unique<Loader>(LoaderParts{.layout = layout_,
                                                   .plan = plan_.slots,
                                                   .blocks = slots_,
                                                   .files = file_list_,
                                                   .digests = digests_,
                                                   .scheduler = *scheduler_,
                                                   .activity = activity_,
                                                   .top_k = spec_.hparams.experts_used,
                                                   .policy = *std::move(policy),
                                                   .spares = spares});
    if (config_.guard.on)
      guard_ =
          std::make_unique<PoolGuard>(PoolGuard::Parts{*loader_, memory_, *scheduler_,
                                                       config_.guard.source, config_.guard.clock},
                                      plan_.available_bytes, plan_.total_bytes());
    if (loader_->spares() > 0) {
      MILLRACE_TRY(make_prefetcher());
    } else if (spares > 0 && !plan_.slots.complete) {
      log_info(fmt::format("--prefetch {}: a cache of {} has none to spare: nothing is read ahead",
                           config_.prefetch, counted(plan_.slots.slots, "slot")));
    }
  }
  MILLRACE_ASSIGN(arena_, ComputeArena::create(plan_.threads));
  walk_ = std::make_unique<BatchWalk>(
      BatchWalk::Parts{spec_, *kernels_, config_.activations, *trunk_, loader_.get(), *arena_,
                       activity_, cancel_, prefetcher_.get(), guard_.get()},
      plan_.batch_tokens, plan_.logits_rows);
  places_.resize(plan_.batch_tokens);
  enders_.resize(plan_.batch_tokens);
  return {};
}

Status Engine::make_prefetcher() {
  MILLRACE_ASSIGN(auto predictor, make_predictor(config_.prefetch));
  std::vector<bool> routed;
  for (const LayerSpec& layer : spec_.layers) routed.push_back(layer.experts);
  prefetcher_ = std::make_unique<Prefetcher>(*loader_, std::move(predictor), predictor_shape(spec_),
                                             std::move(routed));
  return {};
}

Result<Session> Engine::new_session() {
  MILLRACE_ASSIGN(SequenceState state, SequenceState::create(spec_.hparams, plan_.context,
                                                             config_.kv, plan_.batch_tokens));
  return Session(std::move(state));
}

Status Engine::check_tokens(std::span<const TokenId> tokens, std::size_t positions) const {
  if (tokens.size() > positions)
    return Error{ErrorCode::usage,
                 fmt::format("{} tokens do not fit: {} of {} positions are free (raise -c)",
                             tokens.size(), positions, plan_.context)};
  for (const TokenId id : tokens)
    if (id < 0 || static_cast<std::uint32_t>(id) >= spec_.hparams.vocabulary)
      return Error{ErrorCode::usage, fmt::format("token id {} is outside the vocabulary of {}", id,
                                                 spec_.hparams.vocabulary)};
  return {};
}

// Of the tokens in places_, the first `tokens`, of which the last `wanted` have logits to be handed
// out. `shown`: with progress.
Status Engine::walk_part(std::size_t tokens, std::size_t wanted, std::size_t part,
                         std::size_t parts, bool shown,
                         FunctionRef<void(std::size_t, const float*)> logits) {
  const auto show_layer = [&](LayerIndex layer) {
    const double layers = spec_.hparams.layers;
    progress_.show("prompt",
                   (static_cast<double>(part) + (layer + 1) / layers) / static_cast<double>(parts),
                   fmt::format("layer {} of {}, part {} of {}: {}", layer + 1, spec_.hparams.layers,
                               part + 1, parts, counted(tokens, "token")));
  };
  const FunctionRef<void(LayerIndex)> hook(show_layer);
  walk_->set_layer_hook(shown ? &hook : nullptr);
  const Status done = walk_->run({places_.data(), tokens}, wanted, logits);
  walk_->set_layer_hook(nullptr);
  return done;
}

Status Engine::process(Session& session, std::span<const TokenId> tokens, LogitsWanted wanted,
                       FunctionRef<void(std::size_t, const float*)> logits) {
  MILLRACE_TRY(check_tokens(tokens, session.room()));
  const std::size_t before = session.tokens_.size();
  const std::size_t parts = (tokens.size() + plan_.batch_tokens - 1) / plan_.batch_tokens;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t first = part * plan_.batch_tokens;
    const std::size_t count = std::min<std::size_t>(plan_.batch_tokens, tokens.size() - first);
    for (std::size_t i = 0; i < count; ++i)
      places_[i] = {tokens[first + i], static_cast<std::uint32_t>(before + first + i),
                    &session.state_};
    const std::size_t last = wanted == LogitsWanted::last && part + 1 == parts ? 1 : 0;
    const Status done =
        walk_part(count, wanted == LogitsWanted::all ? count : last, part, parts, tokens.size() > 1,
                  [&](std::size_t index, const float* row) { logits(first + index, row); });
    if (!done) {
      progress_.clear();
      session.rewind(before);
      return done.error();
    }
    session.append(tokens.subspan(first, count));
  }
  if (tokens.size() > 1) progress_.clear();
  return {};
}

Status Engine::process_together(std::span<const SequenceTokens> sequences,
                                FunctionRef<void(std::size_t, const float*)> logits) {
  std::size_t all = 0;
  for (const SequenceTokens& each : sequences) {
    MILLRACE_TRY(check_tokens(each.tokens, each.session->room()));
    MILLRACE_CHECK(!each.tokens.empty());
    all += each.tokens.size();
  }
  // So the logits of a part are handed out in one go, or none of them.
  MILLRACE_CHECK(sequences.size() <= plan_.sequences && plan_.sequences <= plan_.logits_rows);
  TogetherCursor cursor(sequences);
  const std::size_t parts = (all + plan_.batch_tokens - 1) / plan_.batch_tokens;
  for (std::size_t part = 0; part < parts; ++part) {
    const std::size_t count = std::min<std::size_t>(plan_.batch_tokens, all - cursor.taken());
    const std::size_t ending = cursor.take({places_.data(), count}, enders_);
    const Status done = walk_part(count, ending, part, parts, all > sequences.size(),
                                  [&](std::size_t index, const float* row) {
                                    logits(enders_[index - (count - ending)], row);
                                  });
    if (!done) {
      progress_.clear();
      cursor.rewind();
      return done.error();
    }
    cursor.append();
  }
  if (all > sequences.size()) progress_.clear();
  return {};
}

Status Engine::require_tokenizer() const {
  if (tokenizer_ != nullptr) return {};
  return tokenizer_error_;
}

Status Engine::check_files() const {
  const std::vector<DriveReads> reads = scheduler_->drives();
  for (std::size_t drive = 0; drive < drives_.size(); ++drive) {
    for (const std::uint32_t index : drives_[drive].files) {
      if (index == ReadDrive::no_file) continue;
      const File& file = files_[index];
      const Result<std::uint64_t> size = file.current_size();
      const bool cut_short = size && *size < file.size_bytes();
      if (cut_short && !reads[drive].dropped.empty()) continue;
      MILLRACE_TRY(file.check_unchanged());
    }
  }
  return {};
}

bool Engine::direct() const noexcept {
  return std::all_of(files_.begin(), files_.end(), [](const File& file) { return file.direct(); });
}

EngineCounters Engine::counters() const {
  return {.times = activity_.times(),
          .experts = loader_ == nullptr ? LoaderStats{} : loader_->stats(),
          .reads = scheduler_->stats(),
          .small_bytes = metadata_bytes_ + probe_bytes_ + trunk_->small_bytes_read()};
}

}  // namespace millrace
