#include "runtime/pipeline/batch_walk.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "kernels/rope_table.h"
#include "runtime/pipeline/workspace_sizes.h"

namespace millrace {

namespace {

constexpr std::size_t token_grain = 8;  // tokens per range in row-wise parts

}  // namespace

BatchWalk::BatchWalk(const Parts& parts, std::size_t tokens_max)
    : parts_(parts),
      h_(parts.spec.hparams),
      tokens_max_(tokens_max),
      graph_(parts.arena, std::max(1u, h_.experts)),
      attention_(WorkspaceSizes(parts.spec, tokens_max, parts.arena.workers()).attention()) {
  const WorkspaceSizes sizes(parts.spec, tokens_max, parts.arena.workers());
  x_.resize(tokens_max * h_.width);
  projected_.resize(tokens_max * h_.width);
  cosine_.resize(tokens_max * (h_.rotary / 2));
  sine_.resize(cosine_.size());
  normed_ = ActivationRows(tokens_max, h_.width);
  hidden_ = ActivationRows(sizes.hidden_rows, sizes.hidden_columns);
  up_.resize(sizes.up_floats);
  logits_.resize(sizes.logits_floats);
  if (h_.experts > 0) {
    const std::size_t choices = tokens_max * h_.experts_used;
    router_logits_.resize(tokens_max * h_.experts);
    expert_weights_.resize(choices);
    chosen_.resize(choices);
    row_of_.resize(choices);
    row_token_.resize(choices);
    expert_count_.resize(h_.experts);
    expert_next_.resize(h_.experts);
    jobs_.resize(h_.experts);
    request_list_.resize(h_.experts);
    expert_out_.resize(choices * h_.width);
    for (unsigned worker = 0; worker < parts.arena.workers(); ++worker)
      gathered_.emplace_back(sizes.gather_rows, h_.width);
  }
  for (LayerIndex layer = 0; layer < h_.layers; ++layer) {
    bool q8 = false;
    for (ExpertIndex expert = 0; expert < parts.spec.experts.experts(layer); ++expert) {
      const ExpertExtent& extent = parts.spec.experts.at({layer, expert});
      q8 |= context().uses_q8(extent.gate.type) || context().uses_q8(extent.up.type);
    }
    experts_take_q8_.push_back(q8);
  }
  RopeScaling rope = h_.rope;
  rope.pair_factors =
      parts.trunk.rope_factors().empty() ? nullptr : parts.trunk.rope_factors().data();
  theta_.resize(h_.rotary / 2);
  rope_frequencies(rope, theta_.data());
}

std::uint64_t BatchWalk::bytes(const ModelSpec& spec, std::size_t tokens_max,
                               unsigned workers) noexcept {
  return WorkspaceSizes(spec, tokens_max, workers).total_bytes();
}

void BatchWalk::fail(Error error) noexcept {
  const std::lock_guard lock(error_mutex_);
  if (failed_) return;
  error_ = std::move(error);
  failed_ = true;
}

void BatchWalk::fail_numbers(LayerIndex layer, const char* where) noexcept {
  fail({ErrorCode::format, fmt::format("{}: layer {}: {} is NaN or infinite; the weights are "
                                       "damaged or not of the type they claim",
                                       parts_.spec.files.front(), layer, where)});
}

// Decodes the tokens' rows of the embedding table.
void BatchWalk::embed() {
  const Matrix& table = parts_.trunk.embedding();
  const auto decode = parts_.kernels.decode_row[static_cast<std::size_t>(table.type)];
  for (std::size_t t = 0; t < tokens_.size(); ++t)
    decode(table.data + static_cast<std::size_t>(tokens_[t].id) * table.row_bytes, h_.width,
           &x_[t * h_.width]);
}

void BatchWalk::rope_rows() {
  const std::size_t pairs = theta_.size();
  const double magnitude = h_.magnitude;
  parts_.arena.for_ranges(tokens_.size(), token_grain,
                          [&](std::size_t begin, std::size_t end, unsigned) {
                            for (std::size_t t = begin; t < end; ++t)
                              rope_row(theta_.data(), pairs, tokens_[t].position, magnitude,
                                       &cosine_[t * pairs], &sine_[t * pairs]);
                          });
}

void BatchWalk::norm_rows(const float* weight, bool quantize, LayerIndex layer) {
  std::atomic<bool> finite = true;
  parts_.arena.for_ranges(
      tokens_.size(), token_grain, [&](std::size_t begin, std::size_t end, unsigned) {
        for (std::size_t t = begin; t < end; ++t)
          parts_.kernels.rms_norm(&x_[t * h_.width], weight, h_.rms_eps, h_.width, normed_.row(t));
        if (quantize && !normed_.quantize_rows(parts_.kernels, begin, end - begin, h_.width))
          finite = false;
      });
  if (!finite) fail_numbers(layer, "an activation");
}

AttentionShape BatchWalk::attention_shape(LayerIndex layer) const noexcept {
  return {.heads = h_.heads[layer],
          .kv_heads = h_.kv_heads[layer],
          .head_dim = h_.head_dim,
          .value_dim = h_.value_dim,
          .rotary = h_.rotary,
          .scale = h_.attention_scale,
          .rms_eps = h_.rms_eps,
          .rope = parts_.spec.family->rope,
          .qk_norm = parts_.spec.family->qk_norm};
}

unsigned BatchWalk::begin_layer(LayerIndex layer) noexcept {
  layer_ = layer;
  job_count_ = 0;
  if (parts_.cancel.load(std::memory_order_relaxed)) fail({ErrorCode::cancelled, "interrupted"});
  if (failed()) return 0;
  const auto acquired = parts_.trunk.acquire(layer);
  if (!acquired) {
    fail(acquired.error());
    return 0;
  }
  const LayerWeights& weights = **acquired;
  {
    const ComputeScope computing(parts_.activity);
    const BlockContext blocks = context();
    const bool q8 = blocks.uses_q8(weights.matrix(MatrixRole::attn_q).type) ||
                    blocks.uses_q8(weights.matrix(MatrixRole::attn_k).type) ||
                    blocks.uses_q8(weights.matrix(MatrixRole::attn_v).type);
    norm_rows(weights.vector(VectorRole::attn_norm), q8, layer);
    const RopeRows rope{cosine_.data(), sine_.data(), theta_.size()};
    if (!failed() && !attention_gqa(blocks, attention_shape(layer), weights, layer, tokens_, rope,
                                    normed_, attention_, projected_.data(), x_.data()))
      fail_numbers(layer, "the attention's output");
    if (!failed()) {
      if (parts_.spec.layers[layer].experts) job_count_ = route_tokens(layer, weights);
      else dense_layer(layer, weights);
    }
  }
  parts_.trunk.release(layer);
  return job_count_;
}

void BatchWalk::dense_layer(LayerIndex layer, const LayerWeights& weights) {
  const BlockContext blocks = context();
  const GatedFfn ffn{.gate = weights.matrix(MatrixRole::ffn_gate),
                     .up = weights.matrix(MatrixRole::ffn_up),
                     .down = weights.matrix(MatrixRole::ffn_down),
                     .gate_bias = weights.vector(VectorRole::ffn_gate_bias),
                     .up_bias = weights.vector(VectorRole::ffn_up_bias),
                     .down_bias = weights.vector(VectorRole::ffn_down_bias)};
  norm_rows(weights.vector(VectorRole::ffn_norm),
            blocks.uses_q8(ffn.gate.type) || blocks.uses_q8(ffn.up.type), layer);
  if (failed()) return;
  if (!ffn_gate_up(blocks, ffn, ffn.down.type, normed_, 0, tokens_.size(), hidden_, 0,
                   up_.data())) {
    fail_numbers(layer, "the FFN's hidden state");
    return;
  }
  ffn_down(blocks, ffn, hidden_, 0, tokens_.size(), projected_.data(), h_.width);
  parts_.kernels.add(projected_.data(), tokens_.size() * h_.width, x_.data());
}

unsigned BatchWalk::route_tokens(LayerIndex layer, const LayerWeights& weights) {
  const BlockContext blocks = context();
  norm_rows(weights.vector(VectorRole::ffn_norm), experts_take_q8_[layer], layer);
  if (failed()) return 0;
  linear_f32(blocks, weights.matrix(MatrixRole::router), normed_, 0, tokens_.size(),
             router_logits_.data(), h_.experts);
  if (!parts_.kernels.all_finite(router_logits_.data(), tokens_.size() * h_.experts)) {
    fail_numbers(layer, "a router logit");
    return 0;
  }
  const RouterRule rule{.gating = parts_.spec.family->gating,
                        .normalize = h_.normalize_weights,
                        .scale = h_.weights_scale,
                        .experts = h_.experts,
                        .used = h_.experts_used};
  const std::size_t used = h_.experts_used;
  parts_.arena.for_ranges(tokens_.size(), token_grain,
                          [&](std::size_t begin, std::size_t end, unsigned) {
                            for (std::size_t t = begin; t < end; ++t)
                              route(parts_.kernels, rule, &router_logits_[t * h_.experts],
                                    &chosen_[t * used], &expert_weights_[t * used]);
                          });
  for (std::size_t t = 0; routing_sink_ != nullptr && t < tokens_.size(); ++t)
    (*routing_sink_)(tokens_[t], layer, {&chosen_[t * used], used},
                     {&expert_weights_[t * used], used});
  return group_by_expert();
}

// Counting sort of the (token, rank) choices by expert: jobs get consecutive rows, tokens
// ascending.
unsigned BatchWalk::group_by_expert() {
  const std::size_t used = h_.experts_used;
  const std::size_t choices = tokens_.size() * used;
  std::fill(expert_count_.begin(), expert_count_.end(), 0u);
  for (std::size_t i = 0; i < choices; ++i) ++expert_count_[chosen_[i]];
  unsigned jobs = 0;
  std::uint32_t row = 0;
  const auto add_job = [&](ExpertIndex expert) {
    Job& job = jobs_[jobs];
    job.request = ExpertRequest{};
    job.request.key = {layer_, expert};
    job.request.on_ready = &BatchWalk::on_ready;
    job.request.owner = &job;
    job.walk = this;
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

void BatchWalk::request_experts(LayerIndex /*layer*/) noexcept {
  parts_.experts->request({request_list_.data(), job_count_});
}

void BatchWalk::on_ready(ExpertRequest& request, unsigned bits) {
  Job& job = *static_cast<Job*>(request.owner);
  BatchWalk& walk = *job.walk;
  if (bits == 0) walk.fail(*request.failure);
  walk.graph_.deliver(static_cast<unsigned>(&job - walk.jobs_.data()), bits);
}

GatedFfn BatchWalk::expert_ffn(const Job& job) const noexcept {
  const ExpertExtent& extent = parts_.spec.experts.at(job.request.key);
  return {.gate = Matrix(extent.gate, job.request.gate),
          .up = Matrix(extent.up, job.request.up),
          .down = Matrix(extent.down, job.request.down)};
}

// With fewer jobs than it takes to keep all threads busy, the rows of an expert are shared too.
BlockContext BatchWalk::job_context() noexcept {
  Parallel& inside = job_count_ >= 2 * parts_.arena.workers() || parts_.arena.workers() == 1
                         ? static_cast<Parallel&>(serial_)
                         : parts_.arena;
  return {parts_.kernels, inside, parts_.mode};
}

void BatchWalk::gate_up(unsigned index, unsigned worker) noexcept {
  if (failed()) return;
  const ComputeScope computing(parts_.activity);
  Job& job = jobs_[index];
  const GatedFfn ffn = expert_ffn(job);
  const DType down_type = parts_.spec.experts.at(job.request.key).down.type;
  const BlockContext blocks = job_context();
  const bool q8 = blocks.uses_q8(ffn.gate.type) || blocks.uses_q8(ffn.up.type);
  const bool floats = !blocks.uses_q8(ffn.gate.type) || !blocks.uses_q8(ffn.up.type);
  ActivationRows& gathered = gathered_[worker];
  float* const up = up_.data() + worker * gathered.rows() * h_.expert_width;
  bool finite = true;
  for (std::uint32_t done = 0; done < job.count;) {
    const std::uint32_t row = job.first_row + done;
    const std::uint32_t count =
        std::min(job.count - done, static_cast<std::uint32_t>(gathered.rows()));
    if (count == 1) {
      finite &= ffn_gate_up(blocks, ffn, down_type, normed_, row_token_[row], 1, hidden_, row, up);
    } else {
      for (std::uint32_t i = 0; i < count; ++i) {
        if (q8) gathered.copy_row(i, normed_, row_token_[row + i], false);
        if (floats) gathered.copy_row(i, normed_, row_token_[row + i], true);
      }
      finite &= ffn_gate_up(blocks, ffn, down_type, gathered, 0, count, hidden_, row, up);
    }
    done += count;
  }
  if (!finite) fail_numbers(job.request.key.layer, "an expert's hidden state");
}

void BatchWalk::down(unsigned index, unsigned /*worker*/) noexcept {
  Job& job = jobs_[index];
  if (!failed()) {
    const ComputeScope computing(parts_.activity);
    ffn_down(job_context(), expert_ffn(job), hidden_, job.first_row, job.count,
             &expert_out_[std::size_t{job.first_row} * h_.width], h_.width);
  }
  parts_.experts->release(job.request);
}

void BatchWalk::drop(unsigned index) noexcept { parts_.experts->release(jobs_[index].request); }

bool BatchWalk::end_layer(LayerIndex layer) noexcept {
  if (failed()) return false;
  if (job_count_ > 0) {
    const ComputeScope computing(parts_.activity);
    const std::size_t used = h_.experts_used;
    parts_.arena.for_ranges(
        tokens_.size(), token_grain, [&](std::size_t begin, std::size_t end, unsigned) {
          for (std::size_t t = begin; t < end; ++t) {
            float* const y = &projected_[t * h_.width];
            std::fill_n(y, h_.width, 0.0F);
            for (std::size_t k = 0; k < used; ++k)
              parts_.kernels.add_scaled(&expert_out_[std::size_t{row_of_[t * used + k]} * h_.width],
                                        expert_weights_[t * used + k], h_.width, y);
            parts_.kernels.add(y, h_.width, &x_[t * h_.width]);
          }
        });
  }
  if (layer_hook_ != nullptr) (*layer_hook_)(layer);
  return layer + 1 < h_.layers;
}

// Output norm and head for tokens first .. end, a few at a time.
void BatchWalk::write_logits(std::size_t first,
                             FunctionRef<void(std::size_t, const float*)> logits) {
  const Matrix& head = parts_.trunk.head();
  const std::size_t rows_at_once = logits_.size() / h_.vocabulary;
  for (std::size_t t = first; t < tokens_.size() && !failed(); t += rows_at_once) {
    const std::size_t count = std::min(rows_at_once, tokens_.size() - t);
    {
      const ComputeScope computing(parts_.activity);
      const BlockContext blocks = context();
      for (std::size_t i = t; i < t + count; ++i)
        parts_.kernels.rms_norm(&x_[i * h_.width], parts_.trunk.output_norm(), h_.rms_eps, h_.width,
                                normed_.row(i));
      if (blocks.uses_q8(head.type) && !normed_.quantize_rows(parts_.kernels, t, count, h_.width))
        fail_numbers(h_.layers - 1, "the output");
      linear(blocks, head, normed_, t, count, logits_.data(), h_.vocabulary);
      if (!parts_.kernels.all_finite(logits_.data(), count * h_.vocabulary))
        fail_numbers(h_.layers - 1, "a logit");
    }
    for (std::size_t i = 0; i < count && !failed(); ++i) logits(t + i, &logits_[i * h_.vocabulary]);
  }
}

Status BatchWalk::run(std::span<const TokenPlace> tokens, LogitsWanted wanted,
                      FunctionRef<void(std::size_t, const float*)> logits) {
  MILLRACE_CHECK(!tokens.empty() && tokens.size() <= tokens_max_);
  tokens_ = tokens;
  failed_ = false;
  parts_.arena.run([&] {
    const ComputeScope computing(parts_.activity);
    embed();
    rope_rows();
  });
  graph_.run(*this);
  if (!failed() && wanted != LogitsWanted::none)
    parts_.arena.run(
        [&] { write_logits(wanted == LogitsWanted::all ? 0 : tokens.size() - 1, logits); });
  if (failed()) return error_;
  return {};
}

}  // namespace millrace
