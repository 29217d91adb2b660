#include "model/blocks/attention_gqa.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "model/blocks/products.h"

namespace millrace {

namespace {

std::size_t kernel_floats(const GqaShape& widest) noexcept {
  return attention_run_floats(widest.head_dim, widest.value_dim);
}

}  // namespace

GqaScratch::GqaScratch(const GqaShape& widest, std::size_t tokens, std::size_t workers)
    : q(tokens * widest.heads * widest.head_dim),
      k(tokens * widest.kv_heads * widest.head_dim),
      v(tokens * widest.kv_heads * widest.value_dim),
      gated(widest.output_gate ? 2 * q.size() : 0),
      out(tokens, std::size_t{widest.heads} * widest.value_dim),
      kernel(workers * kernel_floats(widest)) {}

std::size_t GqaScratch::bytes(const GqaShape& widest, std::size_t tokens,
                              std::size_t workers) noexcept {
  const std::size_t query_parts = widest.output_gate ? 3 : 1;
  const std::size_t columns =
      (query_parts * widest.heads + widest.kv_heads) * std::size_t{widest.head_dim} +
      std::size_t{widest.kv_heads} * widest.value_dim;
  return (tokens * columns + workers * kernel_floats(widest)) * sizeof(float) +
         ActivationRows::bytes(tokens, std::size_t{widest.heads} * widest.value_dim);
}

namespace {

constexpr std::size_t head_dim_max = 4096;  // as hparams checks it

void clamp_rows(float limit, float* x, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) x[i] = std::clamp(x[i], -limit, limit);
}

// A head's part of a row of queries and gates: head_dim of each.
float* gated_head(const GqaShape& shape, GqaScratch& scratch, std::size_t t, std::size_t head) {
  return scratch.gated.data() + (t * shape.heads + head) * 2 * shape.head_dim;
}

// The attention's output times the sigmoid of its gates.
void gate_output(const BlockContext& context, const GqaShape& shape, std::size_t tokens,
                 GqaScratch& scratch) {
  const auto gate_head = [&](std::size_t t, std::size_t head) {
    float* const gate = gated_head(shape, scratch, t, head) + shape.head_dim;
    float* const out = scratch.out.row(t) + head * shape.value_dim;
    context.kernels.sigmoid(gate, shape.value_dim, gate);
    for (std::size_t i = 0; i < shape.value_dim; ++i) out[i] *= gate[i];
  };
  context.parallel.for_ranges(tokens, attention_token_grain,
                              [&](std::size_t begin, std::size_t end, unsigned) {
                                for (std::size_t t = begin; t < end; ++t)
                                  for (std::size_t head = 0; head < shape.heads; ++head)
                                    gate_head(t, head);
                              });
}

// Heads whose pairs come as all firsts, then all seconds: pair by pair, as the rotation of adjacent
// elements wants them.
void join_pairs(float* x, std::size_t heads, std::size_t head_dim, std::size_t rotary) {
  std::array<float, head_dim_max> seconds;
  const std::size_t pairs = rotary / 2;
  for (std::size_t h = 0; h < heads; ++h, x += head_dim) {
    std::copy_n(x + pairs, pairs, seconds.begin());
    for (std::size_t i = pairs; i-- > 0;) {
      x[2 * i] = x[i];
      x[2 * i + 1] = seconds[i];
    }
  }
}

// Queries (with gates, where the layer has them), keys and values of all tokens.
void project_input(const BlockContext& context, const GqaShape& shape, const LayerWeights& weights,
                   const ActivationRows& normed, std::size_t tokens, GqaScratch& scratch) {
  const Matrix* const matrices[] = {&weights.matrix(MatrixRole::attn_q),
                                    &weights.matrix(MatrixRole::attn_k),
                                    &weights.matrix(MatrixRole::attn_v)};
  constexpr VectorRole biases[] = {VectorRole::attn_q_bias, VectorRole::attn_k_bias,
                                   VectorRole::attn_v_bias};
  float* const to[] = {shape.output_gate ? scratch.gated.data() : scratch.q.data(),
                       scratch.k.data(), scratch.v.data()};
  if (tokens == 1) {
    const Product all[] = {{*matrices[0], &normed, 0, to[0]},
                           {*matrices[1], &normed, 0, to[1]},
                           {*matrices[2], &normed, 0, to[2]}};
    multiply(context, all);
  }
  for (std::size_t i = 0; i < 3; ++i) {
    const std::size_t rows = matrices[i]->rows;
    if (tokens > 1) linear(context, *matrices[i], normed, 0, tokens, to[i], rows);
    add_bias(context, weights.vector(biases[i]), rows, tokens, to[i], rows);
  }
}

// Norms (where the layer has them), rotates, and puts keys and values into the cache.
void norm_rotate_store(const BlockContext& context, const GqaShape& shape,
                       const LayerWeights& weights, LayerIndex layer,
                       std::span<const TokenPlace> tokens, const RopeRows& rope,
                       GqaScratch& scratch) {
  const KernelTable& kernels = context.kernels;
  const auto rotate = shape.rope == RopeKind::norm ? kernels.rope_norm : kernels.rope_neox;
  const auto prepare = [&](float* at, std::size_t heads, const float* norm, std::size_t t) {
    const bool row = shape.qk_norm == QkNorm::whole_row;
    const std::size_t span = row ? heads * shape.head_dim : shape.head_dim;
    const std::size_t spans = norm == nullptr ? 0 : row ? 1 : heads;
    for (std::size_t i = 0; i < spans; ++i)
      kernels.rms_norm(at + i * span, norm, shape.rms_eps, span, at + i * span);
    if (shape.split_pairs) join_pairs(at, heads, shape.head_dim, shape.rotary);
    rotate(at, heads, shape.head_dim, shape.rotary, rope.cosines(t), rope.sines(t));
  };
  context.parallel.for_ranges(
      tokens.size(), attention_token_grain, [&](std::size_t begin, std::size_t end, unsigned) {
        for (std::size_t t = begin; t < end; ++t) {
          float* const q = scratch.q.data() + t * shape.heads * shape.head_dim;
          float* const k = scratch.k.data() + t * shape.kv_heads * shape.head_dim;
          float* const v = scratch.v.data() + t * shape.kv_heads * shape.value_dim;
          for (std::size_t head = 0; shape.output_gate && head < shape.heads; ++head)
            std::copy_n(gated_head(shape, scratch, t, head), shape.head_dim,
                        q + head * shape.head_dim);
          if (shape.clamp > 0) {
            clamp_rows(shape.clamp, q, std::size_t{shape.heads} * shape.head_dim);
            clamp_rows(shape.clamp, k, std::size_t{shape.kv_heads} * shape.head_dim);
            clamp_rows(shape.clamp, v, std::size_t{shape.kv_heads} * shape.value_dim);
          }
          prepare(q, shape.heads, weights.vector(VectorRole::attn_q_norm), t);
          prepare(k, shape.kv_heads, weights.vector(VectorRole::attn_k_norm), t);
          tokens[t].state->kv.store(kernels, layer, tokens[t].position, k, v);
        }
      });
}

}  // namespace

bool attention_gqa(const BlockContext& context, const GqaShape& shape, const LayerWeights& weights,
                   LayerIndex layer, std::span<const TokenPlace> tokens, const RopeRows& rope,
                   const ActivationRows& normed, GqaScratch& scratch, float* projected) {
  const std::size_t count = tokens.size();
  project_input(context, shape, weights, normed, count, scratch);
  make_cache_room(tokens, layer);
  norm_rotate_store(context, shape, weights, layer, tokens, rope, scratch);
  attend(context, layer, tokens,
         {.heads = shape.heads,
          .kv_heads = shape.kv_heads,
          .head_dim = shape.head_dim,
          .value_dim = shape.value_dim,
          .window = shape.window,
          .scale = shape.scale,
          .sinks = weights.vector(VectorRole::attn_sinks),
          .q = scratch.q.data(),
          .out = scratch.out.row(0),
          .out_stride = scratch.out.columns(),
          .scratch = scratch.kernel.data(),
          .scratch_floats = attention_run_floats(shape.head_dim, shape.value_dim)});
  if (shape.output_gate) gate_output(context, shape, count, scratch);
  return project_output(context, weights, scratch.out, count, projected);
}

}  // namespace millrace
