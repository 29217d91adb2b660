#include "runtime/routing_recorder.h"

namespace millrace {

Result<std::unique_ptr<RoutingRecorder>> RoutingRecorder::start(Engine& engine,
                                                                const std::string& path) {
  std::unique_ptr<RoutingRecorder> made(new RoutingRecorder(engine));
  if (path.empty()) return made;
  const ModelSpec& spec = engine.spec();
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
  if (trace_ != nullptr) engine_.set_routing_sink(nullptr);
}

Status RoutingRecorder::finish() {
  if (trace_ == nullptr) return {};
  engine_.set_routing_sink(nullptr);
  const Status done = trace_->finish();
  trace_.reset();
  if (done) return {};
  return Error{done.error().code, "--trace " + done.error().what};
}

void RoutingRecorder::record(const TokenPlace& place, LayerIndex layer,
                             std::span<const ExpertIndex> experts,
                             std::span<const float> weights) noexcept {
  const bool prompt = place.position < prompt_tokens_;
  trace_->record(turn_, prompt ? RoutingPhase::prompt : RoutingPhase::generation, place.position,
                 layer, experts, weights);
}

}  // namespace millrace
