// BatchWalk: takes a batch of tokens (one in decode, a prompt part in prefill, any mixture of
// sequences) through all layers and hands out logits. Layer-major: each expert is asked for once
// per layer and batch, its tokens gathered into one product. A token's bits do not depend on the
// batch it is in. Owned by the engine; one run at a time. All buffers are allocated at
// construction; run() allocates nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "model/blocks/attention_gqa.h"
#include "model/blocks/gated_ffn.h"
#include "model/expert_source.h"
#include "model/model_spec.h"
#include "model/router.h"
#include "model/trunk_store.h"
#include "runtime/base/activity.h"
#include "runtime/base/function_ref.h"
#include "runtime/graph/arena.h"
#include "runtime/graph/layer_graph.h"

namespace millrace {

enum class LogitsWanted : std::uint8_t { none, last, all };

// Told about every routing decision: (token's place, layer, chosen experts and weights in rank
// order).
using RoutingSink =
    FunctionRef<void(const TokenPlace& place, LayerIndex layer,
                     std::span<const ExpertIndex> experts, std::span<const float> weights)>;

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
    const std::atomic<bool>& cancel;  // checked between layers
  };
  // `tokens_max`: the largest batch.
  BatchWalk(const Parts& parts, std::size_t tokens_max);
  // Bytes that such an object allocates (for the plan).
  static std::uint64_t bytes(const ModelSpec& spec, std::size_t tokens_max,
                             unsigned workers) noexcept;

  // tokens: 1 .. tokens_max, the positions of one sequence ascending. `logits` is called with
  // (index in the batch, vocabulary floats) in ascending order, for the last token or for all.
  // Errors: `io` (a read failed), `cancelled`, `format` (the model produced NaN or infinity).
  Status run(std::span<const TokenPlace> tokens, LogitsWanted wanted,
             FunctionRef<void(std::size_t, const float*)> logits);
  // Called for each token and MoE layer from the next run on; the callable must live as long as it
  // is set. Null: nobody.
  void set_routing_sink(const RoutingSink* sink) noexcept { routing_sink_ = sink; }
  // Called after each layer of a run (for progress), by one thread at a time. Null: nobody.
  void set_layer_hook(const FunctionRef<void(LayerIndex)>* hook) noexcept { layer_hook_ = hook; }

  // LayerWork, for the graph.
  unsigned begin_layer(LayerIndex layer) noexcept override;
  void request_experts(LayerIndex layer) noexcept override;
  void gate_up(unsigned job, unsigned worker) noexcept override;
  void down(unsigned job, unsigned worker) noexcept override;
  void drop(unsigned job) noexcept override;
  bool end_layer(LayerIndex layer) noexcept override;

 private:
  // The tokens of one expert in the current layer: rows [first_row, first_row + count) of the
  // sorted buffers.
  struct Job {
    ExpertRequest request;
    BatchWalk* walk;
    std::uint32_t first_row;
    std::uint32_t count;
  };
  static void on_ready(ExpertRequest& request, unsigned bits);

  void fail(Error error) noexcept;
  void fail_numbers(LayerIndex layer, const char* where) noexcept;
  bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }
  void embed();
  void rope_rows();
  void norm_rows(const float* weight, bool quantize, LayerIndex layer);
  void dense_layer(LayerIndex layer, const LayerWeights& weights);
  unsigned route_tokens(LayerIndex layer, const LayerWeights& weights);
  unsigned group_by_expert();
  GatedFfn expert_ffn(const Job& job) const noexcept;
  void write_logits(std::size_t first, FunctionRef<void(std::size_t, const float*)> logits);
  AttentionShape attention_shape(LayerIndex layer) const noexcept;
  BlockContext context() noexcept { return {parts_.kernels, parts_.arena, parts_.mode}; }
  BlockContext job_context() noexcept;

  Parts parts_;
  const Hparams& h_;
  std::size_t tokens_max_;
  LayerGraph graph_;
  SerialParallel serial_;
  const RoutingSink* routing_sink_ = nullptr;
  const FunctionRef<void(LayerIndex)>* layer_hook_ = nullptr;

  std::span<const TokenPlace> tokens_;  // of the run under way
  unsigned job_count_ = 0;
  LayerIndex layer_ = 0;

  // Buffers; rows are tokens unless stated.
  std::vector<float> x_, projected_, cosine_, sine_;
  ActivationRows normed_;
  AttentionScratch attention_;
  std::vector<float> router_logits_, expert_weights_;  // tokens x experts, tokens x top-k
  std::vector<ExpertIndex> chosen_;                    // tokens x top-k, rank order
  std::vector<std::uint32_t> row_of_;                  // tokens x top-k -> sorted row
  std::vector<std::uint32_t> row_token_, expert_count_, expert_next_;
  std::vector<Job> jobs_;
  std::vector<ExpertRequest*> request_list_;
  ActivationRows hidden_;                 // sorted rows (dense: tokens)
  std::vector<float> expert_out_;         // sorted rows x width
  std::vector<ActivationRows> gathered_;  // per worker: gather_rows rows of normed input
  std::vector<float> up_;  // per worker: gather_rows x expert width (dense: tokens x width)
  std::vector<float> logits_;
  std::vector<bool> experts_take_q8_;  // per layer: some expert's gate or up does
  std::vector<double> theta_;          // rope frequencies

  std::atomic<bool> failed_ = false;
  std::mutex error_mutex_;
  Error error_{ErrorCode::io, {}};
};

}  // namespace millrace
