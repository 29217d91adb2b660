// MoeLayer: the routed experts of a layer for a batch of tokens. Chooses, gathers the tokens of
// each expert into one product, asks for the experts, computes them as their slices arrive, and
// sums up in rank order. Owned by BatchWalk, which calls it in the order route, request, (gate_up,
// down or drop of every job, in any thread), sum_experts. All buffers are allocated at
// construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/blocks/attention_common.h"
#include "model/blocks/gated_ffn.h"
#include "model/expert_source.h"
#include "model/hash_routes.h"
#include "model/model_spec.h"
#include "model/router.h"
#include "runtime/base/function_ref.h"
#include "runtime/graph/arena.h"
#include "runtime/graph/layer_graph.h"
#include "runtime/pipeline/first_error.h"

namespace millrace {

inline constexpr std::size_t token_grain = 8;  // tokens per range in row-wise parts

// Told about every routing decision: (token's place, layer, chosen experts and weights in rank
// order).
using RoutingSink =
    FunctionRef<void(const TokenPlace& place, LayerIndex layer,
                     std::span<const ExpertIndex> experts, std::span<const float> weights)>;

// Told what a router sees: (token's place, layer, the normed state of the token).
using RouterInputSink =
    FunctionRef<void(const TokenPlace& place, LayerIndex layer, std::span<const float> state)>;

class MoeLayer {
 public:
  struct Parts {
    const ModelSpec& spec;
    const KernelTable& kernels;
    ActivationMode mode;
    ExpertSource* experts;  // null for dense models
    const HashRoutes& hash_routes;
    ComputeArena& arena;
    LayerGraph& graph;
    FirstError& error;
    PanelScratch panels;  // of all workers
  };
  MoeLayer(const Parts& parts, std::size_t tokens_max);
  static std::uint64_t bytes(const ModelSpec& spec, std::size_t tokens_max,
                             unsigned workers) noexcept;

  // The quantized twins of their input that the layer's experts take.
  Rounding rounding(LayerIndex layer) const noexcept { return rounding_[layer]; }
  // Router, choice, grouping; `normed` holds the FFN's input of all tokens and stays as it is until
  // the last job is done. Returns the number of jobs, 0 on an error. `weights`: its vectors are
  // used until then, its router only now.
  unsigned route(LayerIndex layer, const LayerWeights& weights, std::span<const TokenPlace> tokens,
                 const ActivationRows& normed, const RoutingSink* sink);
  // Called before each choice, as long as it is set.
  void set_input_sink(const RouterInputSink* sink) noexcept { input_sink_ = sink; }
  // The choice of the batch's only token, in rank order; after route().
  std::span<const ExpertIndex> choice() const noexcept {
    return {chosen_.data(), h().experts_used};
  }
  // Asks for the experts of all jobs.
  void request() noexcept;
  // Instead of request(): claims the experts of all jobs if they are all in memory. Then either
  // run_all() computes the jobs and gives the experts back, or, for a batch of one token,
  // ffn_rows() makes an FFN of each job, returning how many, and release_all() gives them back.
  bool claim_if_here() noexcept;
  void run_all() noexcept;
  std::size_t ffn_rows(std::span<FfnRow> rows) noexcept;
  void release_all() noexcept;
  void gate_up(unsigned job, unsigned worker) noexcept;
  void down(unsigned job, unsigned worker) noexcept;
  void drop(unsigned job) noexcept;
  // y = the weighted sum of token t's experts.
  void sum_experts(std::size_t t, float* y) const noexcept;

  // For a job among `jobs` in this worker: whether its work is to be shared over the threads too.
  BlockContext job_context(unsigned jobs, unsigned worker) noexcept;

 private:
  // The tokens of one expert: rows [first_row, first_row + count) of the sorted buffers.
  struct Job {
    ExpertRequest request;
    MoeLayer* owner;
    std::uint32_t first_row;
    std::uint32_t count;
  };
  static void on_ready(ExpertRequest& request, unsigned bits);
  static constexpr std::size_t gather_rows_max = 128;  // tokens that go through a product together

  bool shares_rows(unsigned jobs) const noexcept;
  const Hparams& h() const noexcept { return parts_.spec.hparams; }
  bool score(const LayerWeights& weights, std::size_t tokens, const ActivationRows& normed);
  unsigned group_by_expert(std::size_t tokens);
  GatedFfn expert_ffn(const Job& job) const noexcept;

  Parts parts_;
  SerialParallel serial_;
  LayerIndex layer_ = 0;
  const LayerWeights* weights_ = nullptr;
  const ActivationRows* normed_ = nullptr;
  const RouterInputSink* input_sink_ = nullptr;
  unsigned jobs_in_use_ = 0;
  std::vector<Rounding> rounding_;  // per layer

  // Rows are tokens unless stated.
  std::vector<float> logits_, expert_weights_;  // tokens x experts, tokens x top-k
  std::vector<ExpertIndex> chosen_;             // tokens x top-k, rank order
  std::vector<std::uint32_t> row_of_;           // tokens x top-k -> sorted row
  std::vector<std::uint32_t> row_token_, expert_count_, expert_next_;
  std::vector<Job> jobs_;
  std::vector<ExpertRequest*> request_list_;
  ActivationRows hidden_;                 // sorted rows
  std::vector<float> expert_out_;         // sorted rows x width
  std::vector<ActivationRows> gathered_;  // per worker: some rows of normed input
  std::vector<float> up_;                 // per worker: as many rows x expert width
  std::vector<float> ups_;                // top-k x expert width
};

}  // namespace millrace
