#include "model/blocks/delta_net.h"

#include <algorithm>
#include <cmath>

#include "kernels/math.h"
#include "runtime/base/limits.h"

namespace millrace {

namespace {

constexpr std::size_t channel_grain = 256;  // of the convolution; a whole number of lanes

bool grouped(const DeltaShape& shape) noexcept { return shape.heads == DeltaNets::grouped_heads; }

}  // namespace

DeltaScratch::DeltaScratch(const DeltaShape& shape, std::size_t tokens, std::size_t workers)
    : joined(grouped(shape) ? tokens * (shape.sizes.channels() + shape.sizes.values()) : 0),
      pair(grouped(shape) ? tokens * 2 * shape.sizes.value_heads : 0),
      mixed(tokens * shape.sizes.channels()),
      turned(mixed.size()),
      beta(tokens * shape.sizes.value_heads),
      decay(beta.size()),
      head(workers * shape.sizes.value_dim),
      out(tokens, shape.sizes.values()),
      order(tokens),
      runs(tokens + 1) {}

std::size_t DeltaScratch::bytes(const DeltaShape& shape, std::size_t tokens,
                                std::size_t workers) noexcept {
  const DeltaSizes& sizes = shape.sizes;
  const std::size_t fused = grouped(shape) ? std::size_t{sizes.channels()} + sizes.values() +
                                                 std::size_t{2} * sizes.value_heads
                                           : 0;
  const std::size_t columns =
      fused + std::size_t{2} * sizes.channels() + std::size_t{2} * sizes.value_heads;
  return (tokens * columns + workers * sizes.value_dim) * sizeof(float) +
         (2 * tokens + 1) * sizeof(std::uint32_t) + ActivationRows::bytes(tokens, sizes.values());
}

namespace {

// One pass of the block; the members are its arguments.
class DeltaPass {
 public:
  DeltaPass(const BlockContext& context, const DeltaShape& shape, const LayerWeights& weights,
            LayerIndex layer, std::span<const TokenPlace> tokens, DeltaScratch& scratch)
      : context_(context),
        kernels_(context.kernels),
        shape_(shape),
        sizes_(shape.sizes),
        weights_(weights),
        layer_(layer),
        tokens_(tokens),
        scratch_(scratch) {}

  // Tokens by sequence, each in ascending order, and their states made ready.
  void order_tokens() {
    std::uint32_t placed = 0;
    run_count_ = 0;
    for (std::size_t t = 0; t < tokens_.size(); ++t) {
      SequenceState* const state = tokens_[t].state;
      const auto same = [&](const TokenPlace& place) { return place.state == state; };
      const auto before = tokens_.first(t);
      if (t > 0 && (same(before.back()) || std::any_of(before.begin(), before.end(), same)))
        continue;
      const std::uint32_t first = placed;
      for (std::size_t other = t; other < tokens_.size(); ++other)
        if (same(tokens_[other])) scratch_.order[placed++] = static_cast<std::uint32_t>(other);
      state->recurrent.begin(layer_, tokens_[t].position, placed - first);
      scratch_.runs[run_count_++] = first;
    }
    scratch_.runs[run_count_] = placed;
  }

  // What the layer takes from its input: q, k, v before the convolution, gates, strengths, decays.
  void project(const ActivationRows& normed) {
    const std::size_t count = tokens_.size();
    const auto linear_to = [&](MatrixRole role, float* to, std::size_t stride) {
      linear(context_, weights_.matrix(role), normed, 0, count, to, stride);
    };
    if (weights_.matrix(MatrixRole::delta_in).present()) {
      linear_to(MatrixRole::delta_in, scratch_.joined.data(), sizes_.channels() + sizes_.values());
    } else {
      linear_to(MatrixRole::delta_qkv, scratch_.mixed.data(), sizes_.channels());
      if (sizes_.regrouped)
        linear_to(MatrixRole::delta_gate, scratch_.joined.data(), sizes_.values());
      else linear_to(MatrixRole::delta_gate, scratch_.out.row(0), scratch_.out.columns());
    }
    if (weights_.matrix(MatrixRole::delta_ba).present()) {
      linear_to(MatrixRole::delta_ba, scratch_.pair.data(), std::size_t{2} * sizes_.value_heads);
    } else {
      linear_to(MatrixRole::delta_beta, scratch_.beta.data(), sizes_.value_heads);
      linear_to(MatrixRole::delta_alpha, scratch_.decay.data(), sizes_.value_heads);
    }
    for_tokens([&](std::size_t t) {
      if (weights_.matrix(MatrixRole::delta_in).present()) split_joined(t);
      if (sizes_.regrouped) tile_gates(t);
      if (weights_.matrix(MatrixRole::delta_ba).present()) split_pair(t);
      finish_strengths(t);
    });
  }

  // The convolution over each sequence's tokens; channels are shared over the threads.
  void convolve() {
    context_.parallel.for_ranges(sizes_.channels(), channel_grain,
                                 [&](std::size_t begin, std::size_t end, unsigned) {
                                   for (std::size_t run = 0; run < run_count_; ++run)
                                     convolve_run(run, begin, end - begin);
                                 });
    for_tokens([&](std::size_t t) {
      float* const q = turned(t);
      for (std::size_t head = 0; head < std::size_t{2} * sizes_.key_heads; ++head)
        kernels_.l2_norm(q + head * sizes_.key_dim, shape_.rms_eps, sizes_.key_dim,
                         q + head * sizes_.key_dim);
    });
  }

  // The recurrence, and what each head puts out, normed and gated. (sequence, value head) pairs are
  // shared over the threads.
  void step_states() {
    context_.parallel.for_ranges(run_count_ * sizes_.value_heads, 1,
                                 [&](std::size_t begin, std::size_t end, unsigned worker) {
                                   for (std::size_t job = begin; job < end; ++job)
                                     step_head(job / sizes_.value_heads, job % sizes_.value_heads,
                                               worker);
                                 });
  }

 private:
  template <class Body>
  void for_tokens(Body body) {
    context_.parallel.for_ranges(tokens_.size(), attention_token_grain,
                                 [&](std::size_t begin, std::size_t end, unsigned) {
                                   for (std::size_t t = begin; t < end; ++t) body(t);
                                 });
  }
  float* mixed(std::size_t t) { return scratch_.mixed.data() + t * sizes_.channels(); }
  float* turned(std::size_t t) { return scratch_.turned.data() + t * sizes_.channels(); }

  // Rows of ssm_in: for each key head q, k, its value heads' v, and their gates.
  void split_joined(std::size_t t) {
    const std::size_t group = sizes_.values() / sizes_.key_heads;
    const float* from =
        scratch_.joined.data() + t * (std::size_t{sizes_.channels()} + sizes_.values());
    const auto take = [&](float* to, std::size_t count) {
      std::copy_n(from, count, to);
      from += count;
    };
    float* const q = mixed(t);
    for (std::size_t head = 0; head < sizes_.key_heads; ++head) {
      take(q + head * sizes_.key_dim, sizes_.key_dim);
      take(q + sizes_.keys() + head * sizes_.key_dim, sizes_.key_dim);
      take(q + 2 * std::size_t{sizes_.keys()} + head * group, group);
      take(scratch_.out.row(t) + head * group, group);
    }
  }

  // Where the output of a value head goes.
  std::size_t place(std::size_t head) const {
    if (!sizes_.regrouped) return head * sizes_.value_dim;
    const std::size_t group = sizes_.value_heads / sizes_.key_heads;
    return (head % group * sizes_.key_heads + head / group) * sizes_.value_dim;
  }
  void tile_gates(std::size_t t) {
    const float* const from = scratch_.joined.data() + t * sizes_.values();
    for (std::size_t head = 0; head < sizes_.value_heads; ++head)
      std::copy_n(from + head * sizes_.value_dim, sizes_.value_dim,
                  scratch_.out.row(t) + place(head));
  }

  // Rows of ssm_ba: for each key head its value heads' strengths, then their decays.
  void split_pair(std::size_t t) {
    const std::size_t group = sizes_.value_heads / sizes_.key_heads;
    const float* const from = scratch_.pair.data() + t * 2 * sizes_.value_heads;
    for (std::size_t head = 0; head < sizes_.value_heads; ++head) {
      const std::size_t at = head / group * 2 * group + head % group;
      scratch_.beta[t * sizes_.value_heads + head] = from[at];
      scratch_.decay[t * sizes_.value_heads + head] = from[at + group];
    }
  }

  // beta = sigmoid(b), decay = exp(ssm_a * softplus(a + ssm_dt)).
  void finish_strengths(std::size_t t) {
    const std::size_t heads = sizes_.value_heads;
    float* const beta = scratch_.beta.data() + t * heads;
    float* const decay = scratch_.decay.data() + t * heads;
    kernels_.sigmoid(beta, heads, beta);
    kernels_.add(weights_.vector(VectorRole::delta_dt), heads, decay);
    const float* const factor = weights_.vector(VectorRole::delta_decay);
    for (std::size_t head = 0; head < heads; ++head)
      decay[head] = factor[head] * softplus_f32(decay[head]);
    kernels_.exp(decay, heads, decay);
  }

  // Channels first .. of a sequence's tokens, and what the next tokens need of them.
  void convolve_run(std::size_t run, std::size_t first, std::size_t count) {
    const std::uint32_t* const order = scratch_.order.data() + scratch_.runs[run];
    const std::size_t tokens = scratch_.runs[run + 1] - scratch_.runs[run];
    const std::size_t before = sizes_.taps - 1;
    RecurrentState& state = tokens_[order[0]].state->recurrent;
    const std::uint32_t start = tokens_[order[0]].position;
    std::array<const float*, limits::conv_taps_max> rows;
    for (std::size_t i = 0; i < tokens; ++i) {
      for (std::size_t tap = 0; tap <= before; ++tap) {
        // The token that lies before - tap places back, in this batch or in the state; in front of
        // the first position the state is empty.
        const std::size_t place = i + tap;
        const float* const row =
            place >= before ? mixed(order[place - before])
                            : state.conv_row(layer_, start + static_cast<std::uint32_t>(place));
        rows[tap] = row + first;
      }
      kernels_.conv_silu({.rows = rows.data(),
                          .taps = sizes_.taps,
                          .weights = weights_.vector(VectorRole::delta_conv) + first,
                          .weight_stride = sizes_.channels(),
                          .count = count,
                          .out = turned(order[i]) + first});
    }
    for (std::size_t i = tokens - std::min(tokens, before); i < tokens; ++i)
      std::copy_n(mixed(order[i]) + first, count,
                  state.conv_row(layer_, start + static_cast<std::uint32_t>(i)) + first);
  }

  void step_head(std::size_t run, std::size_t head, unsigned worker) {
    const std::size_t key_head =
        grouped(shape_) ? head / (sizes_.value_heads / sizes_.key_heads) : head % sizes_.key_heads;
    float* const out = scratch_.head.data() + worker * sizes_.value_dim;
    for (std::size_t i = scratch_.runs[run]; i < scratch_.runs[run + 1]; ++i) {
      const std::size_t t = scratch_.order[i];
      const float* const q = turned(t) + key_head * sizes_.key_dim;
      kernels_.delta_step(
          {.q = q,
           .k = q + sizes_.keys(),
           .v = turned(t) + 2 * std::size_t{sizes_.keys()} + head * sizes_.value_dim,
           .key_dim = sizes_.key_dim,
           .value_dim = sizes_.value_dim,
           .decay = scratch_.decay[t * sizes_.value_heads + head],
           .beta = scratch_.beta[t * sizes_.value_heads + head],
           .scale = 1.0F / std::sqrt(static_cast<float>(sizes_.key_dim)),
           .state = tokens_[t].state->recurrent.matrix(layer_, static_cast<std::uint32_t>(head)),
           .out = out});
      kernels_.rms_norm(out, weights_.vector(VectorRole::delta_norm), shape_.rms_eps,
                        sizes_.value_dim, out);
      float* const gate = scratch_.out.row(t) + place(head);
      kernels_.swiglu(gate, out, sizes_.value_dim, gate);
    }
  }

  const BlockContext& context_;
  const KernelTable& kernels_;
  const DeltaShape& shape_;
  const DeltaSizes& sizes_;
  const LayerWeights& weights_;
  const LayerIndex layer_;
  const std::span<const TokenPlace> tokens_;
  DeltaScratch& scratch_;
  std::size_t run_count_ = 0;
};

}  // namespace

bool delta_net(const BlockContext& context, const DeltaShape& shape, const LayerWeights& weights,
               LayerIndex layer, std::span<const TokenPlace> tokens, const ActivationRows& normed,
               DeltaScratch& scratch, float* projected) {
  DeltaPass pass(context, shape, weights, layer, tokens, scratch);
  pass.order_tokens();
  pass.project(normed);
  pass.convolve();
  pass.step_states();
  return project_output(context, weights, scratch.out, tokens.size(), projected);
}

}  // namespace millrace
