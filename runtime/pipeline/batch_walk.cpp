#include "runtime/pipeline/batch_walk.h"

#include <algorithm>
#include <array>

#include "kernels/rope_table.h"
#include "runtime/guard/pool_guard.h"
#include "runtime/pipeline/bad_numbers.h"
#include "runtime/pipeline/workspace_sizes.h"

namespace millrace {

BatchWalk::BatchWalk(const Parts& parts, std::size_t tokens_max, std::size_t logits_rows)
    : parts_(parts),
      h_(parts.spec.hparams),
      tokens_max_(tokens_max),
      graph_(parts.arena, h_.experts + 2),
      panels_(parts.kernels, widest_matrix(parts.spec), parts.arena.workers()),
      residual_(h_, tokens_max),
      attention_(h_, *parts.spec.family, tokens_max, parts.arena.workers()),
      moe_({parts.spec, parts.kernels, parts.mode, parts.experts, parts.trunk.hash_routes(),
            parts.arena, graph_, error_, panels_.view()},
           tokens_max) {
  const WorkspaceSizes sizes(parts.spec, tokens_max, logits_rows);
  projected_.resize(tokens_max * h_.width);
  normed_ = ActivationRows(tokens_max, h_.width);
  trunk_hidden_ = ActivationRows(tokens_max, sizes.trunk_ffn);
  trunk_up_.resize(tokens_max * sizes.trunk_ffn);
  shared_out_.resize(sizes.shared_floats);
  shared_factor_.resize(tokens_max);
  logits_.resize(sizes.logits_floats);
  if (parts.prefetcher != nullptr) router_ahead_.emplace(parts.spec, parts.kernels, parts.trunk);
  add_rotations(h_.rope, h_.magnitude);
  if (!h_.compression.ratios.empty()) add_rotations(h_.compression.rope, h_.magnitude);
}

void BatchWalk::add_rotations(RopeScaling rope, double magnitude) {
  const std::span<const float> factors = parts_.trunk.rope_factors();
  rope.pair_factors = factors.empty() ? nullptr : factors.data();
  Rotations& added = rotations_.emplace_back();
  added.magnitude = magnitude;
  added.theta.resize(h_.rotary / 2);
  added.cosine.resize(tokens_max_ * added.theta.size());
  added.sine.resize(added.cosine.size());
  rope_frequencies(rope, added.theta.data());
}

std::uint64_t BatchWalk::bytes(const ModelSpec& spec, std::size_t tokens_max,
                               std::size_t logits_rows, unsigned workers) noexcept {
  return WorkspaceSizes(spec, tokens_max, logits_rows).total_bytes() +
         PanelMemory::bytes(widest_matrix(spec), workers) +
         Residual::bytes(spec.hparams, tokens_max) +
         Attention::bytes(spec.hparams, *spec.family, tokens_max, workers) +
         MoeLayer::bytes(spec, tokens_max, workers);
}

void BatchWalk::fail_numbers(LayerIndex layer, const char* where) noexcept {
  error_.set(bad_numbers(parts_.spec, layer, where));
}

// Decodes the tokens' rows of the embedding table.
void BatchWalk::embed() {
  const Matrix& table = parts_.trunk.embedding();
  const auto decode = parts_.kernels.decode_row[static_cast<std::size_t>(table.type)];
  for (std::size_t t = 0; t < tokens_.size(); ++t) {
    decode(table.data + static_cast<std::size_t>(tokens_[t].id) * table.row_bytes, h_.width,
           residual_.start(t));
    residual_.spread(t);
  }
}

void BatchWalk::rope_rows() {
  const std::size_t pairs = h_.rotary / 2;
  for (Rotations& kind : rotations_)
    parts_.arena.for_ranges(
        tokens_.size(), token_grain, [&](std::size_t begin, std::size_t end, unsigned) {
          for (std::size_t t = begin; t < end; ++t)
            rope_row(kind.theta.data(), pairs, tokens_[t].position, kind.magnitude,
                     &kind.cosine[t * pairs], &kind.sine[t * pairs]);
        });
}

RopeRows BatchWalk::rotations(LayerIndex layer) const noexcept {
  const Rotations& kind = rotations_[h_.compression.ratio(layer) > 0 ? 1 : 0];
  return {kind.cosine.data(), kind.sine.data(), kind.theta.size(), kind.theta.data(),
          kind.magnitude};
}

void BatchWalk::norm_rows(const float* weight, Rounding rounding, LayerIndex layer) {
  std::atomic<bool> finite = true;
  parts_.arena.for_ranges(
      tokens_.size(), token_grain, [&](std::size_t begin, std::size_t end, unsigned) {
        for (std::size_t t = begin; t < end; ++t)
          parts_.kernels.rms_norm(residual_.input(t), weight, h_.rms_eps, h_.width, normed_.row(t));
        if (!normed_.quantize_rows(parts_.kernels, begin, end - begin, h_.width, rounding))
          finite = false;
      });
  if (!finite) fail_numbers(layer, "an activation");
}

unsigned BatchWalk::begin_layer(LayerIndex layer) noexcept {
  layer_ = layer;
  job_count_ = 0;
  shared_job_ = no_job;
  guess_job_ = no_job;
  shared_weights_ = nullptr;
  if (parts_.cancel.load(std::memory_order_relaxed))
    error_.set({ErrorCode::cancelled, "interrupted"});
  if (failed()) return 0;
  const auto acquired = parts_.trunk.acquire(layer);
  if (!acquired) {
    error_.set(acquired.error());
    return 0;
  }
  const LayerWeights& weights = **acquired;
  {
    const ComputeScope computing(parts_.activity);
    attention(layer, weights);
    if (!failed()) {
      if (parts_.spec.layers[layer].experts) job_count_ = moe_layer(layer, weights);
      else dense_layer(layer, weights);
    }
  }
  if (shared_job_ == no_job) parts_.trunk.release(layer);
  return job_count_;
}

void BatchWalk::attention(LayerIndex layer, const LayerWeights& weights) {
  const BlockContext blocks = context();
  residual_.open(
      blocks,
      {weights.matrix(MatrixRole::streams_attn), weights.vector(VectorRole::streams_attn_base),
       weights.vector(VectorRole::streams_attn_scale)},
      tokens_.size());
  norm_rows(weights.vector(VectorRole::attn_norm), Attention::rounding(blocks, weights), layer);
  if (failed()) return;
  if (!attention_.run(blocks, layer, weights, tokens_, rotations(layer), normed_,
                      projected_.data()))
    fail_numbers(layer, "the attention's output");
  else add_to_residual(projected_.data());
}

void BatchWalk::add_to_residual(const float* y) {
  parts_.arena.for_ranges(tokens_.size(), token_grain,
                          [&](std::size_t begin, std::size_t end, unsigned) {
                            for (std::size_t t = begin; t < end; ++t)
                              residual_.close(parts_.kernels, t, y + t * h_.width);
                          });
}

GatedFfn BatchWalk::trunk_ffn(LayerIndex layer, const LayerWeights& weights) const noexcept {
  return {.gate = weights.matrix(MatrixRole::ffn_gate),
          .up = weights.matrix(MatrixRole::ffn_up),
          .down = weights.matrix(MatrixRole::ffn_down),
          .gate_bias = weights.vector(VectorRole::ffn_gate_bias),
          .up_bias = weights.vector(VectorRole::ffn_up_bias),
          .down_bias = weights.vector(VectorRole::ffn_down_bias),
          .clamp = Hparams::clamp(h_.shared_clamp, layer)};
}

void BatchWalk::open_ffn(const LayerWeights& weights) {
  residual_.open(
      context(),
      {weights.matrix(MatrixRole::streams_ffn), weights.vector(VectorRole::streams_ffn_base),
       weights.vector(VectorRole::streams_ffn_scale)},
      tokens_.size());
}

void BatchWalk::dense_layer(LayerIndex layer, const LayerWeights& weights) {
  const BlockContext blocks = context();
  const GatedFfn ffn = trunk_ffn(layer, weights);
  open_ffn(weights);
  norm_rows(weights.vector(VectorRole::ffn_norm),
            blocks.rounding(ffn.gate.type) | blocks.rounding(ffn.up.type), layer);
  if (failed()) return;
  bool finite = false;
  if (tokens_.size() == 1) {
    const FfnRow row = {ffn, &normed_, 0, &trunk_hidden_, 0, trunk_up_.data(), projected_.data()};
    finite = run_ffn_rows(blocks, {&row, 1});
  } else {
    finite = ffn_gate_up(blocks, ffn, ffn.down.type, normed_, 0, tokens_.size(), trunk_hidden_, 0,
                         trunk_up_.data());
    if (finite)
      ffn_down(blocks, ffn, trunk_hidden_, 0, tokens_.size(), projected_.data(), h_.width);
  }
  if (!finite) return fail_numbers(layer, "the FFN's hidden state");
  add_to_residual(projected_.data());
}

// Up to the choice of experts. Returns the number of jobs.
unsigned BatchWalk::moe_layer(LayerIndex layer, const LayerWeights& weights) {
  const BlockContext blocks = context();
  const Matrix& shared_gate = weights.matrix(MatrixRole::ffn_gate);
  const Matrix& shared_up = weights.matrix(MatrixRole::ffn_up);
  Rounding rounding = moe_.rounding(layer);
  if (shared_gate.present())
    rounding = rounding | blocks.rounding(shared_gate.type) | blocks.rounding(shared_up.type);
  open_ffn(weights);
  norm_rows(weights.vector(VectorRole::ffn_norm), rounding, layer);
  if (failed()) return 0;
  const unsigned jobs = moe_.route(layer, weights, tokens_, normed_, routing_sink_);
  if (jobs == 0) return 0;
  if (shared_gate.present()) shared_weights_ = &weights;
  const bool guessing = parts_.prefetcher != nullptr && tokens_.size() == 1;
  if (guessing) parts_.prefetcher->chosen(layer, moe_.choice());
  if (all_here(layer, weights)) return 0;
  unsigned all = jobs;
  if (shared_weights_ != nullptr) shared_job_ = all++;
  if (guessing) guess_job_ = all++;
  return all;
}

// Experts that are all in memory are computed at once, by the crew, and the layer has no jobs.
// False: they are not, and nothing has happened.
bool BatchWalk::all_here(LayerIndex layer, const LayerWeights& weights) noexcept {
  if (!moe_.claim_if_here()) return false;
  if (tokens_.size() == 1) token_experts(layer, weights);
  else batch_experts();
  if (!failed()) add_experts();
  return true;
}

// Of a single token: gate and up of all experts, the shared one included, then down.
void BatchWalk::token_experts(LayerIndex layer, const LayerWeights& weights) noexcept {
  std::array<FfnRow, ffn_rows_max> rows;
  std::size_t count = moe_.ffn_rows(rows);
  const BlockContext blocks = context();
  if (shared_weights_ != nullptr)
    rows[count++] = {.ffn = trunk_ffn(layer, weights),
                     .x = &normed_,
                     .x_row = 0,
                     .hidden = &trunk_hidden_,
                     .hidden_row = 0,
                     .up = trunk_up_.data(),
                     .y = shared_out_.data()};
  if (!run_ffn_rows(blocks, std::span(rows).first(count)))
    fail_numbers(layer, "an expert's hidden state");
  moe_.release_all();
  if (shared_weights_ != nullptr) weigh_shared(blocks);
  if (parts_.prefetcher != nullptr) look_ahead(parts_.arena);
}

// Of several: expert by expert; the shared one's rows are for all threads.
void BatchWalk::batch_experts() noexcept {
  moe_.run_all();
  if (shared_weights_ == nullptr || failed()) return;
  const unsigned worker = parts_.arena.worker();
  shared_gate_up(worker);
  if (!failed()) shared_down(worker);
}

// The trunk's jobs come last, so that reading begins first.
void BatchWalk::request_experts(LayerIndex /*layer*/) noexcept {
  const unsigned shared = shared_job_;
  const unsigned guess = guess_job_;
  moe_.request();
  if (guess != no_job) graph_.deliver(guess, slice_all);
  if (shared != no_job) graph_.deliver(shared, slice_all);
}

// A job, so that the stream and the prefetcher are its own until the layer's end.
void BatchWalk::look_ahead(Parallel& parallel) noexcept {
  router_ahead_->look(*parts_.prefetcher, parallel, layer_, tokens_.front().id, residual_.input(0));
  parts_.prefetcher->look_ahead(layer_);
}

void BatchWalk::gate_up(unsigned job, unsigned worker) noexcept {
  if (failed()) return;
  const ComputeScope computing(parts_.activity);
  SerialParallel alone;
  if (job == guess_job_) look_ahead(alone);
  else if (job == shared_job_) shared_gate_up(worker);
  else moe_.gate_up(job, worker);
}

void BatchWalk::down(unsigned job, unsigned worker) noexcept {
  {
    const ComputeScope computing(parts_.activity);
    if (job == guess_job_) return;
    if (job != shared_job_) moe_.down(job, worker);
    else if (!failed()) shared_down(worker);
  }
  if (job == shared_job_) parts_.trunk.release(layer_);
  if (parts_.guard != nullptr) parts_.guard->tick();
}

void BatchWalk::drop(unsigned job) noexcept { moe_.drop(job); }

void BatchWalk::shared_gate_up(unsigned worker) noexcept {
  const BlockContext blocks = moe_.job_context(job_count_, worker);
  const GatedFfn ffn = trunk_ffn(layer_, *shared_weights_);
  if (!ffn_gate_up(blocks, ffn, ffn.down.type, normed_, 0, tokens_.size(), trunk_hidden_, 0,
                   trunk_up_.data()))
    fail_numbers(layer_, "the shared expert's hidden state");
}

void BatchWalk::shared_down(unsigned worker) noexcept {
  const BlockContext blocks = moe_.job_context(job_count_, worker);
  ffn_down(blocks, trunk_ffn(layer_, *shared_weights_), trunk_hidden_, 0, tokens_.size(),
           shared_out_.data(), h_.width);
  weigh_shared(blocks);
}

// How much of the shared expert each token takes.
void BatchWalk::weigh_shared(const BlockContext& blocks) noexcept {
  const float* const gate = shared_weights_->vector(VectorRole::shared_gate);
  if (gate == nullptr) {
    std::fill_n(shared_factor_.begin(), tokens_.size(), 1.0F);
    return;
  }
  Matrix row;
  row.data = reinterpret_cast<const std::byte*>(gate);
  row.row_bytes = h_.width * sizeof(float);
  row.rows = 1;
  row.columns = h_.width;
  linear_f32(blocks, row, normed_, 0, tokens_.size(), shared_factor_.data(), 1);
  parts_.kernels.sigmoid(shared_factor_.data(), tokens_.size(), shared_factor_.data());
}

// The weighted sum of the experts of all tokens, and the shared one's part, to the residual.
void BatchWalk::add_experts() noexcept {
  const auto add_token = [&](std::size_t t) {
    float* const y = &projected_[t * h_.width];
    moe_.sum_experts(t, y);
    if (shared_weights_ != nullptr)
      parts_.kernels.add_scaled(&shared_out_[t * h_.width], shared_factor_[t], h_.width, y);
    residual_.close(parts_.kernels, t, y);
  };
  parts_.arena.for_ranges(tokens_.size(), token_grain,
                          [&](std::size_t begin, std::size_t end, unsigned) {
                            for (std::size_t t = begin; t < end; ++t) add_token(t);
                          });
}

bool BatchWalk::end_layer(LayerIndex layer) noexcept {
  if (failed()) return false;
  if (job_count_ > 0) {
    const ComputeScope computing(parts_.activity);
    add_experts();
  }
  if (parts_.guard != nullptr) parts_.guard->tick();
  if (layer_hook_ != nullptr) (*layer_hook_)(layer);
  return layer + 1 < h_.layers;
}

StreamWeights BatchWalk::head_streams() const noexcept {
  const auto streams = parts_.trunk.output_streams();
  StreamWeights made{{}, streams.base, streams.scale};
  made.matrix.data = reinterpret_cast<const std::byte*>(streams.weights);
  made.matrix.columns = std::size_t{h_.streams.count} * h_.width;
  made.matrix.row_bytes = made.matrix.columns * sizeof(float);
  made.matrix.rows = h_.streams.count;
  return made;
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
      const CrewScope crew(parts_.arena);
      const BlockContext blocks = context();
      residual_.open_head(blocks, head_streams(), t, count);
      for (std::size_t i = t; i < t + count; ++i)
        parts_.kernels.rms_norm(residual_.input(i), parts_.trunk.output_norm(), h_.rms_eps,
                                h_.width, normed_.row(i));
      if (!normed_.quantize_rows(parts_.kernels, t, count, h_.width, blocks.rounding(head.type)))
        fail_numbers(h_.layers - 1, "the output");
      linear(blocks, head, normed_, t, count, logits_.data(), h_.vocabulary);
      parts_.arena.for_ranges(count, 1, [&](std::size_t begin, std::size_t end, unsigned) {
        if (!parts_.kernels.all_finite(&logits_[begin * h_.vocabulary],
                                       (end - begin) * h_.vocabulary))
          fail_numbers(h_.layers - 1, "a logit");
      });
    }
    for (std::size_t i = 0; i < count && !failed(); ++i) logits(t + i, &logits_[i * h_.vocabulary]);
  }
}

Status BatchWalk::run(std::span<const TokenPlace> tokens, std::size_t wanted,
                      FunctionRef<void(std::size_t, const float*)> logits) {
  MILLRACE_CHECK(!tokens.empty() && tokens.size() <= tokens_max_ && wanted <= tokens.size());
  tokens_ = tokens;
  error_.clear();
  parts_.arena.run([&] {
    const ComputeScope computing(parts_.activity);
    embed();
    rope_rows();
  });
  graph_.run(*this);
  if (!failed() && wanted > 0)
    parts_.arena.run([&] { write_logits(tokens.size() - wanted, logits); });
  if (failed()) return error_.error();
  return {};
}

}  // namespace millrace
