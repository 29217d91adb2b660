// BatchWalk: takes a batch of tokens (one in decode, a prompt part in prefill, any mixture of
// sequences) through all layers and hands out logits. Layer-major: each expert is asked for once
// per layer and batch, its tokens gathered into one product. A token's bits do not depend on the
// batch it is in. Owned by the engine; one run at a time. All buffers are allocated at
// construction; run() allocates nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "model/blocks/attention.h"
#include "model/blocks/gated_ffn.h"
#include "model/blocks/residual.h"
#include "model/expert_source.h"
#include "model/model_spec.h"
#include "model/trunk_store.h"
#include "runtime/base/activity.h"
#include "runtime/base/function_ref.h"
#include "runtime/graph/arena.h"
#include "runtime/graph/layer_graph.h"
#include "runtime/pipeline/first_error.h"
#include "runtime/pipeline/moe_layer.h"
#include "runtime/pipeline/router_ahead.h"

namespace millrace {

class PoolGuard;

class BatchWalk final : public LayerWork {
 public:
  struct Parts {
    const ModelSpec& spec;
    const KernelTable& kernels;
    ActivationMode mode;
    TrunkStore& trunk;
    ExpertSource* experts;  // null for dense models
    ComputeArena& arena;
    ActivityClock& activity;
    const std::atomic<bool>& cancel;   // checked between layers
    Prefetcher* prefetcher = nullptr;  // null: nothing is guessed
    PoolGuard* guard = nullptr;        // looked after between jobs and layers; null: nobody
  };
  // `tokens_max`: the largest batch. `logits_rows`: tokens that share a pass over the head.
  BatchWalk(const Parts& parts, std::size_t tokens_max, std::size_t logits_rows);
  // Bytes that such an object allocates (for the plan).
  static std::uint64_t bytes(const ModelSpec& spec, std::size_t tokens_max, std::size_t logits_rows,
                             unsigned workers) noexcept;

  // tokens: 1 .. tokens_max, the positions of one sequence ascending, tokens of several mixed as
  // you like. `logits` is called with (index in the batch, vocabulary floats) in ascending order,
  // for the last `wanted` tokens. Errors: `io` (a read failed), `cancelled`, `format` (the model
  // produced NaN or infinity).
  Status run(std::span<const TokenPlace> tokens, std::size_t wanted,
             FunctionRef<void(std::size_t, const float*)> logits);
  // Called for each token and MoE layer from the next run on; the callable must live as long as it
  // is set. Null: nobody.
  void set_routing_sink(const RoutingSink* sink) noexcept { routing_sink_ = sink; }
  // The same for what the routers see.
  void set_router_input_sink(const RouterInputSink* sink) noexcept { moe_.set_input_sink(sink); }
  // Called after each layer of a run (for progress), by one thread at a time. Null: nobody.
  void set_layer_hook(const FunctionRef<void(LayerIndex)>* hook) noexcept { layer_hook_ = hook; }

  // LayerWork, for the graph. The jobs of a MoE layer are its experts, and behind them the shared
  // expert, if there is one, and the guess for the next layers: they compute while the others are
  // being read.
  unsigned begin_layer(LayerIndex layer) noexcept override;
  void request_experts(LayerIndex layer) noexcept override;
  void gate_up(unsigned job, unsigned worker) noexcept override;
  void down(unsigned job, unsigned worker) noexcept override;
  void drop(unsigned job) noexcept override;
  bool end_layer(LayerIndex layer) noexcept override;

 private:
  void fail_numbers(LayerIndex layer, const char* where) noexcept;
  bool failed() const noexcept { return error_.is_set(); }
  void embed();
  // Angles of one kind of layer, and the rotations of the batch's positions by them.
  struct Rotations {
    double magnitude = 1;
    std::vector<double> theta;
    std::vector<float> cosine, sine;
  };
  void add_rotations(RopeScaling rope, double magnitude);
  void rope_rows();
  RopeRows rotations(LayerIndex layer) const noexcept;
  void add_to_residual(const float* y);
  // Of the residual as the sublayer takes it.
  void norm_rows(const float* weight, Rounding rounding, LayerIndex layer);
  void attention(LayerIndex layer, const LayerWeights& weights);
  void open_ffn(const LayerWeights& weights);
  StreamWeights head_streams() const noexcept;
  void dense_layer(LayerIndex layer, const LayerWeights& weights);
  unsigned moe_layer(LayerIndex layer, const LayerWeights& weights);
  bool all_here(LayerIndex layer, const LayerWeights& weights) noexcept;
  void token_experts(LayerIndex layer, const LayerWeights& weights) noexcept;
  void batch_experts() noexcept;
  void add_experts() noexcept;
  void look_ahead(Parallel& parallel) noexcept;
  GatedFfn trunk_ffn(LayerIndex layer, const LayerWeights& weights) const noexcept;
  void shared_gate_up(unsigned worker) noexcept;
  void shared_down(unsigned worker) noexcept;
  void weigh_shared(const BlockContext& blocks) noexcept;
  void write_logits(std::size_t first, FunctionRef<void(std::size_t, const float*)> logits);
  BlockContext context() noexcept {
    return {parts_.kernels, parts_.arena, parts_.mode, panels_.view()};
  }

  Parts parts_;
  const Hparams& h_;
  std::size_t tokens_max_;
  FirstError error_;
  LayerGraph graph_;
  const RoutingSink* routing_sink_ = nullptr;
  const FunctionRef<void(LayerIndex)>* layer_hook_ = nullptr;

  // Of the run under way.
  std::span<const TokenPlace> tokens_;
  LayerIndex layer_ = 0;
  unsigned job_count_ = 0;
  static constexpr unsigned no_job = ~0u;
  unsigned shared_job_ = no_job;  // in this layer
  unsigned guess_job_ = no_job;   // of a single token, if anything is guessed
  // Of the layer, if it has a shared expert; held until that is done.
  const LayerWeights* shared_weights_ = nullptr;

  PanelMemory panels_;

  // Buffers; rows are tokens.
  Residual residual_;
  std::vector<float> projected_;
  std::vector<Rotations> rotations_;  // of plain layers; then of those with pooled rows
  ActivationRows normed_;
  Attention attention_;
  MoeLayer moe_;
  ActivationRows trunk_hidden_;  // of the dense FFN or the shared expert
  std::vector<float> trunk_up_;  // tokens x its width
  std::vector<float> shared_out_, shared_factor_;
  std::vector<float> logits_;
  std::optional<RouterAhead> router_ahead_;
};

}  // namespace millrace
