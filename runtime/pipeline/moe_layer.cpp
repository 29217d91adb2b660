#include "runtime/pipeline/moe_layer.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/pipeline/bad_numbers.h"
#include "runtime/pipeline/router_ahead.h"

namespace millrace {

MoeLayer::MoeLayer(const Parts& parts, std::size_t tokens_max) : parts_(parts) {
  const std::size_t width = h().width;
  if (h().experts > 0) {
    const std::size_t choices = tokens_max * h().experts_used;
    logits_.resize(tokens_max * h().experts);
    expert_weights_.resize(choices);
    chosen_.resize(choices);
    row_of_.resize(choices);
    row_token_.resize(choices);
    expert_count_.resize(h().experts);
    expert_next_.resize(h().experts);
    jobs_.resize(h().experts);
    request_list_.resize(h().experts);
    hidden_ = ActivationRows(choices, h().expert_width);
    expert_out_.resize(choices * width);
    const std::size_t rows = std::min(tokens_max, gather_rows_max);
    for (unsigned worker = 0; worker < parts.arena.workers(); ++worker)
      gathered_.emplace_back(rows, width);
    up_.resize(parts.arena.workers() * rows * h().expert_width);
    ups_.resize(std::size_t{h().experts_used} * h().expert_width);
  }
  const BlockContext context{parts.kernels, serial_, parts.mode};
  for (LayerIndex layer = 0; layer < h().layers; ++layer) {
    Rounding rounding = Rounding::none;
    for (ExpertIndex expert = 0; expert < parts.spec.experts.experts(layer); ++expert) {
      const ExpertExtent& extent = parts.spec.experts.at({layer, expert});
      rounding = rounding | context.rounding(extent.gate.type) | context.rounding(extent.up.type);
    }
    rounding_.push_back(rounding);
  }
}

std::uint64_t MoeLayer::bytes(const ModelSpec& spec, std::size_t tokens_max,
                              unsigned workers) noexcept {
  const Hparams& h = spec.hparams;
  if (h.experts == 0) return 0;
  const std::size_t choices = tokens_max * h.experts_used;
  const std::size_t rows = std::min(tokens_max, gather_rows_max);
  const std::size_t floats = tokens_max * h.experts + choices * h.width +
                             (std::size_t{workers} * rows + h.experts_used) * h.expert_width;
  return floats * sizeof(float) + choices * 4 * sizeof(std::uint32_t) +
         h.experts * (sizeof(Job) + sizeof(ExpertRequest*) + 2 * sizeof(std::uint32_t)) +
         ActivationRows::bytes(choices, h.expert_width) +
         workers * ActivationRows::bytes(rows, h.width);
}

// Logits of the router, finite or false.
bool MoeLayer::score(const LayerWeights& weights, std::size_t tokens,
                     const ActivationRows& normed) {
  const BlockContext context{parts_.kernels, parts_.arena, parts_.mode};
  linear_f32(context, weights.matrix(MatrixRole::router), normed, 0, tokens, logits_.data(),
             h().experts);
  add_bias(context, weights.vector(VectorRole::router_bias), h().experts, tokens, logits_.data(),
           h().experts);
  return parts_.kernels.all_finite(logits_.data(), tokens * h().experts);
}

unsigned MoeLayer::route(LayerIndex layer, const LayerWeights& weights,
                         std::span<const TokenPlace> tokens, const ActivationRows& normed,
                         const RoutingSink* sink) {
  layer_ = layer;
  weights_ = &weights;
  normed_ = &normed;
  jobs_in_use_ = 0;
  for (std::size_t t = 0; input_sink_ != nullptr && t < tokens.size(); ++t)
    (*input_sink_)(tokens[t], layer, {normed.row(t), h().width});
  if (!score(weights, tokens.size(), normed)) {
    parts_.error.set(bad_numbers(parts_.spec, layer, "a router logit"));
    return 0;
  }
  const std::size_t used = h().experts_used;
  const RouterRule rule = router_rule(h(), weights);
  parts_.arena.for_ranges(tokens.size(), token_grain,
                          [&](std::size_t begin, std::size_t end, unsigned) {
                            for (std::size_t t = begin; t < end; ++t) {
                              RouterRule own = rule;
                              if (h().hashed(layer))
                                own.given = parts_.hash_routes.experts(layer, tokens[t].id).data();
                              millrace::route(parts_.kernels, own, &logits_[t * h().experts],
                                              &chosen_[t * used], &expert_weights_[t * used]);
                            }
                          });
  for (std::size_t t = 0; sink != nullptr && t < tokens.size(); ++t)
    (*sink)(tokens[t], layer, {&chosen_[t * used], used}, {&expert_weights_[t * used], used});
  return jobs_in_use_ = group_by_expert(tokens.size());
}

// Counting sort of the (token, rank) choices by expert: jobs get consecutive rows, tokens
// ascending.
unsigned MoeLayer::group_by_expert(std::size_t tokens) {
  const std::size_t used = h().experts_used;
  const std::size_t choices = tokens * used;
  std::fill(expert_count_.begin(), expert_count_.end(), 0u);
  for (std::size_t i = 0; i < choices; ++i) ++expert_count_[chosen_[i]];
  unsigned jobs = 0;
  std::uint32_t row = 0;
  const auto add_job = [&](ExpertIndex expert) {
    Job& job = jobs_[jobs];
    job.request = ExpertRequest{};
    job.request.key = {layer_, expert};
    job.request.tokens = expert_count_[expert];
    job.request.on_ready = &MoeLayer::on_ready;
    job.request.owner = &job;
    job.owner = this;
    job.first_row = row;
    job.count = expert_count_[expert];
    request_list_[jobs++] = &job.request;
    expert_next_[expert] = row;
    row += expert_count_[expert];
    expert_count_[expert] = 0;
  };
  // In rank order of the first token that wants them, so that a decode step asks for its heaviest
  // expert first.
  for (std::size_t i = 0; i < choices; ++i)
    if (expert_count_[chosen_[i]] > 0) add_job(chosen_[i]);
  for (std::size_t i = 0; i < choices; ++i) {
    const std::uint32_t at = expert_next_[chosen_[i]]++;
    row_of_[i] = at;
    row_token_[at] = static_cast<std::uint32_t>(i / used);
  }
  return jobs;
}

void MoeLayer::request() noexcept { parts_.experts->request({request_list_.data(), jobs_in_use_}); }

bool MoeLayer::claim_if_here() noexcept {
  return parts_.experts->request_if_here({request_list_.data(), jobs_in_use_});
}

// With few jobs, job_context() shares the rows of each; else each job keeps to a thread.
void MoeLayer::run_all() noexcept {
  const auto run = [&](std::size_t begin, std::size_t end, unsigned worker) {
    for (std::size_t job = begin; job < end; ++job) {
      gate_up(static_cast<unsigned>(job), worker);
      down(static_cast<unsigned>(job), worker);
    }
  };
  if (shares_rows(jobs_in_use_)) run(0, jobs_in_use_, parts_.arena.worker());
  else parts_.arena.for_ranges(jobs_in_use_, 1, run);
}

std::size_t MoeLayer::ffn_rows(std::span<FfnRow> rows) noexcept {
  MILLRACE_CHECK(jobs_in_use_ <= rows.size() && jobs_in_use_ <= h().experts_used);
  for (std::size_t i = 0; i < jobs_in_use_; ++i) {
    const std::uint32_t row = jobs_[i].first_row;
    rows[i] = {.ffn = expert_ffn(jobs_[i]),
               .x = normed_,
               .x_row = row_token_[row],
               .hidden = &hidden_,
               .hidden_row = row,
               .up = &ups_[i * h().expert_width],
               .y = &expert_out_[std::size_t{row} * h().width]};
  }
  return jobs_in_use_;
}

void MoeLayer::release_all() noexcept {
  for (std::size_t i = 0; i < jobs_in_use_; ++i) parts_.experts->release(jobs_[i].request);
}

void MoeLayer::on_ready(ExpertRequest& request, unsigned bits) {
  const Job& job = *static_cast<const Job*>(request.owner);
  MoeLayer& owner = *job.owner;
  if (bits == 0) owner.parts_.error.set(*request.failure);
  owner.parts_.graph.deliver(static_cast<unsigned>(&job - owner.jobs_.data()), bits);
}

GatedFfn MoeLayer::expert_ffn(const Job& job) const noexcept {
  const ExpertExtent& extent = parts_.spec.experts.at(job.request.key);
  const ExpertRequest& at = job.request;
  GatedFfn ffn{.gate = Matrix(extent.gate, at.gate, at.gate_scales, at.gate_zeros),
               .up = Matrix(extent.up, at.up, at.up_scales, at.up_zeros),
               .down = Matrix(extent.down, at.down, at.down_scales, at.down_zeros)};
  ffn.clamp = Hparams::clamp(h().expert_clamp, layer_);
  const auto bias = [&](VectorRole role, std::size_t columns) -> const float* {
    const float* const all = weights_->vector(role);
    return all == nullptr ? nullptr : all + job.request.key.expert * columns;
  };
  const auto scale = [&](VectorRole role) {
    const float* const all = weights_->vector(role);
    return all == nullptr ? 1.0F : all[job.request.key.expert];
  };
  const float both_scale = scale(VectorRole::expert_gate_up_scale);
  ffn.gate_scale = both_scale * scale(VectorRole::expert_gate_scale);
  ffn.up_scale = both_scale * scale(VectorRole::expert_up_scale);
  ffn.down_scale = scale(VectorRole::expert_down_scale);
  const std::size_t inner = h().expert_width;
  ffn.gate_bias = bias(VectorRole::expert_gate_bias, inner);
  ffn.up_bias = bias(VectorRole::expert_up_bias, inner);
  ffn.down_bias = bias(VectorRole::expert_down_bias, h().width);
  if (const float* both = bias(VectorRole::expert_gate_up_bias, 2 * inner)) {
    ffn.gate_bias = both;
    ffn.up_bias = both + inner;
  }
  return ffn;
}

// With fewer jobs than it takes to keep all threads busy, the rows of an expert are shared too.
bool MoeLayer::shares_rows(unsigned jobs) const noexcept {
  return parts_.arena.workers() > 1 && jobs < 2 * parts_.arena.workers();
}

BlockContext MoeLayer::job_context(unsigned jobs, unsigned worker) noexcept {
  if (!shares_rows(jobs))
    return {parts_.kernels, serial_, parts_.mode, parts_.panels.alone(worker)};
  return {parts_.kernels, parts_.arena, parts_.mode, parts_.panels};
}

void MoeLayer::gate_up(unsigned index, unsigned worker) noexcept {
  const Job& job = jobs_[index];
  const GatedFfn ffn = expert_ffn(job);
  const BlockContext blocks = job_context(jobs_in_use_, worker);
  const Rounding gate = blocks.rounding(ffn.gate.type);
  const Rounding both = gate | blocks.rounding(ffn.up.type);
  const bool floats = gate == Rounding::none || blocks.rounding(ffn.up.type) == Rounding::none;
  ActivationRows& gathered = gathered_[worker];
  float* const up = up_.data() + worker * gathered.rows() * h().expert_width;
  bool finite = true;
  for (std::uint32_t done = 0; done < job.count;) {
    const std::uint32_t row = job.first_row + done;
    const std::uint32_t count =
        std::min(job.count - done, static_cast<std::uint32_t>(gathered.rows()));
    if (count == 1) {
      finite &=
          ffn_gate_up(blocks, ffn, ffn.down.type, *normed_, row_token_[row], 1, hidden_, row, up);
    } else {
      for (std::uint32_t i = 0; i < count; ++i) {
        gathered.copy_rounded(i, *normed_, row_token_[row + i], both);
        if (floats) gathered.copy_floats(i, *normed_, row_token_[row + i]);
      }
      finite &= ffn_gate_up(blocks, ffn, ffn.down.type, gathered, 0, count, hidden_, row, up);
    }
    done += count;
  }
  if (!finite) parts_.error.set(bad_numbers(parts_.spec, layer_, "an expert's hidden state"));
}

void MoeLayer::down(unsigned index, unsigned worker) noexcept {
  Job& job = jobs_[index];
  if (!parts_.error.is_set())
    ffn_down(job_context(jobs_in_use_, worker), expert_ffn(job), hidden_, job.first_row, job.count,
             &expert_out_[std::size_t{job.first_row} * h().width], h().width);
  parts_.experts->release(job.request);
}

void MoeLayer::drop(unsigned job) noexcept { parts_.experts->release(jobs_[job].request); }

void MoeLayer::sum_experts(std::size_t t, float* y) const noexcept {
  const std::size_t used = h().experts_used;
  std::fill_n(y, h().width, 0.0F);
  for (std::size_t k = 0; k < used; ++k)
    parts_.kernels.add_scaled(&expert_out_[std::size_t{row_of_[t * used + k]} * h().width],
                              expert_weights_[t * used + k], h().width, y);
}

}  // namespace millrace
