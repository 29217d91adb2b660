#include "model/blocks/attention_gqa.h"

#include <algorithm>
#include <atomic>

#include "runtime/base/check.h"

namespace millrace {

AttentionScratch::AttentionScratch(std::size_t tokens, std::size_t q_columns,
                                   std::size_t kv_key_columns, std::size_t kv_value_columns,
                                   std::size_t out_columns, std::size_t workers,
                                   std::size_t kernel_floats_each)
    : q(tokens * q_columns),
      k(tokens * kv_key_columns),
      v(tokens * kv_value_columns),
      out(tokens, out_columns),
      kernel(workers * kernel_floats_each),
      kernel_floats(kernel_floats_each) {}

std::size_t AttentionScratch::bytes(std::size_t tokens, std::size_t q_columns,
                                    std::size_t kv_key_columns, std::size_t kv_value_columns,
                                    std::size_t out_columns, std::size_t workers,
                                    std::size_t kernel_floats) noexcept {
  return tokens * (q_columns + kv_key_columns + kv_value_columns) * sizeof(float) +
         ActivationRows::bytes(tokens, out_columns) + workers * kernel_floats * sizeof(float);
}

namespace {

constexpr std::size_t token_grain = 8;  // tokens per range in the cheap, row-wise parts

// Norms (where the family has them), rotates, and puts keys and values into the cache.
void norm_rotate_store(const BlockContext& context, const AttentionShape& shape,
                       const LayerWeights& weights, LayerIndex layer,
                       std::span<const TokenPlace> tokens, const RopeRows& rope,
                       AttentionScratch& scratch) {
  const KernelTable& kernels = context.kernels;
  const auto rotate = shape.rope == RopeKind::norm ? kernels.rope_norm : kernels.rope_neox;
  const auto prepare = [&](float* heads_at, std::size_t heads, const float* norm, std::size_t t) {
    for (std::size_t head = 0; norm != nullptr && head < heads; ++head)
      kernels.rms_norm(heads_at + head * shape.head_dim, norm, shape.rms_eps, shape.head_dim,
                       heads_at + head * shape.head_dim);
    rotate(heads_at, heads, shape.head_dim, shape.rotary, rope.cosine + t * rope.pairs,
           rope.sine + t * rope.pairs);
  };
  context.parallel.for_ranges(
      tokens.size(), token_grain, [&](std::size_t begin, std::size_t end, unsigned) {
        for (std::size_t t = begin; t < end; ++t) {
          float* const q = scratch.q.data() + t * shape.heads * shape.head_dim;
          float* const k = scratch.k.data() + t * shape.kv_heads * shape.head_dim;
          prepare(q, shape.heads, weights.vector(VectorRole::attn_q_norm), t);
          prepare(k, shape.kv_heads, weights.vector(VectorRole::attn_k_norm), t);
          tokens[t].kv->store(kernels, layer, tokens[t].position, k,
                              scratch.v.data() + t * shape.kv_heads * shape.value_dim);
        }
      });
}

// Scores, softmax and values of every (token, KV head).
void attend(const BlockContext& context, const AttentionShape& shape, LayerIndex layer,
            std::span<const TokenPlace> tokens, AttentionScratch& scratch) {
  const std::size_t group = shape.heads / shape.kv_heads;
  const std::size_t jobs = tokens.size() * shape.kv_heads;
  context.parallel.for_ranges(jobs, 1, [&](std::size_t begin, std::size_t end, unsigned worker) {
    for (std::size_t job = begin; job < end; ++job) {
      // Later tokens see more positions: walking heads in the outer order mixes long and short
      // jobs.
      const std::size_t t = job % tokens.size();
      const auto kv_head = static_cast<std::uint32_t>(job / tokens.size());
      const KvCache& kv = *tokens[t].kv;
      const AttentionArgs args = {
          .q = scratch.q.data() + (t * shape.heads + kv_head * group) * shape.head_dim,
          .heads = group,
          .head_dim = shape.head_dim,
          .value_dim = shape.value_dim,
          .k = kv.keys(layer, kv_head),
          .v = kv.values(layer, kv_head),
          .k_stride = shape.head_dim,
          .v_stride = shape.value_dim,
          .first = 0,
          .last = tokens[t].position,
          .scale = shape.scale,
          .sinks = nullptr,
          .out = scratch.out.row(t) + kv_head * group * shape.value_dim,
          .scratch = scratch.kernel.data() + worker * scratch.kernel_floats,
      };
      if (kv.type() == KvType::f16) context.kernels.attention_f16(args);
      else context.kernels.attention_f32(args);
    }
  });
}

}  // namespace

bool attention_gqa(const BlockContext& context, const AttentionShape& shape,
                   const LayerWeights& weights, LayerIndex layer,
                   std::span<const TokenPlace> tokens, const RopeRows& rope,
                   const ActivationRows& normed, AttentionScratch& scratch, float* projected,
                   float* x) {
  const std::size_t count = tokens.size();
  const auto project = [&](MatrixRole role, VectorRole bias, std::vector<float>& to) {
    const Matrix& matrix = weights.matrix(role);
    linear(context, matrix, normed, 0, count, to.data(), matrix.rows);
    add_bias(context, weights.vector(bias), matrix.rows, count, to.data(), matrix.rows);
  };
  project(MatrixRole::attn_q, VectorRole::attn_q_bias, scratch.q);
  project(MatrixRole::attn_k, VectorRole::attn_k_bias, scratch.k);
  project(MatrixRole::attn_v, VectorRole::attn_v_bias, scratch.v);
  norm_rotate_store(context, shape, weights, layer, tokens, rope, scratch);
  attend(context, shape, layer, tokens, scratch);

  const Matrix& output = weights.matrix(MatrixRole::attn_output);
  std::atomic<bool> finite = true;
  if (context.uses_q8(output.type))
    context.parallel.for_ranges(
        count, token_grain, [&](std::size_t begin, std::size_t end, unsigned) {
          if (!scratch.out.quantize_rows(context.kernels, begin, end - begin, output.columns))
            finite = false;
        });
  linear(context, output, scratch.out, 0, count, projected, output.rows);
  add_bias(context, weights.vector(VectorRole::attn_output_bias), output.rows, count, projected,
           output.rows);
  context.kernels.add(projected, count * output.rows, x);
  return finite;
}

}  // namespace millrace
