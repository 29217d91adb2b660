#include "runtime/routing_recorder.h"

#include <fmt/format.h>

#include "runtime/base/log.h"

namespace millrace {

Status RoutingRecorder::check(const Engine& engine, const std::string& path) {
  if (path.empty() || engine.spec().hparams.experts > 0) return {};
  return Error{ErrorCode::usage,
               fmt::format("--trace {}: {}: the model has no routed experts to record",
                           printable(path, 4096), printable(engine.config().model_path, 4096))};
}

Result<std::unique_ptr<RoutingRecorder>> RoutingRecorder::start(Engine& engine,
                                                                const std::string& path) {
  MILLRACE_TRY(check(engine, path));
  std::unique_ptr<RoutingRecorder> made(new RoutingRecorder(engine));
  const ModelSpec& spec = engine.spec();
  if (!engine.routing_key().empty())
    made->tail_.emplace(spec.hparams.layers, spec.hparams.experts_used);
  if (made->tail_) engine.set_routing_sink(&made->sink_);
  if (path.empty()) return made;
  const RoutingTraceHeader header{.model = spec.hparams.name,
                                  .architecture = spec.family->architecture,
                                  .layers = spec.hparams.layers,
                                  .experts = spec.hparams.experts,
                                  .experts_used = spec.hparams.experts_used,
                                  .expert_bytes = {spec.expert_bytes()},
                                  .batch_tokens = engine.plan().batch_tokens};
  auto trace = RoutingTrace::create(path, header);
  if (!trace) return Error{trace.error().code, "--trace " + trace.error().what};
  made->trace_ = *std::move(trace);
  engine.set_routing_sink(&made->sink_);
  return made;
}

RoutingRecorder::~RoutingRecorder() {
  if (trace_ != nullptr || tail_) engine_.set_routing_sink(nullptr);
}

Status RoutingRecorder::finish() {
  if (trace_ == nullptr && !tail_) return {};
  engine_.set_routing_sink(nullptr);
  if (tail_) {
    const Status kept = save_routing(engine_.config().profile_folder, engine_.routing_key(),
                                     engine_.spec(), *tail_);
    if (!kept) log_info("routing is not kept for later plans: " + kept.error().what);
    tail_.reset();
  }
  if (trace_ == nullptr) return {};
  const Status done = trace_->finish();
  trace_.reset();
  if (done) return {};
  return Error{done.error().code, "--trace " + done.error().what};
}

void RoutingRecorder::record(const TokenPlace& place, LayerIndex layer,
                             std::span<const ExpertIndex> experts,
                             std::span<const float> weights) noexcept {
  const bool prompt = place.position < prompt_tokens_;
  if (tail_ && !prompt) tail_->record(layer, experts);
  if (trace_ != nullptr)
    trace_->record(turn_, prompt ? RoutingPhase::prompt : RoutingPhase::generation, place.position,
                   layer, experts, weights);
}

}  // namespace millrace
