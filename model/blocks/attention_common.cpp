#include "model/blocks/attention_common.h"

#include <algorithm>
#include <atomic>

namespace millrace {

void make_cache_room(std::span<const TokenPlace> tokens, LayerIndex layer) {
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    SequenceState* const state = tokens[t].state;
    const auto same = [&](const TokenPlace& place) { return place.state == state; };
    const auto before = tokens.first(t);
    // Mostly the token before is of the same sequence; else the batch mixes a few.
    if (t > 0 && (same(before.back()) || std::any_of(before.begin(), before.end(), same))) continue;
    const auto count = std::count_if(tokens.begin(), tokens.end(), same);
    state->kv.make_room(layer, tokens[t].position, static_cast<std::uint32_t>(count));
  }
}

void (*attention_kernel(const KernelTable& kernels, KvType type) noexcept)(const AttentionArgs&) {
  switch (type) {
    case KvType::f16:
      return kernels.attention_f16;
    case KvType::f32:
      return kernels.attention_f32;
    case KvType::q8_0:
      return kernels.attention_q8_0;
  }
  return nullptr;
}

void attend(const BlockContext& context, LayerIndex layer, std::span<const TokenPlace> tokens,
            const CacheQuery& query) {
  // Heads of a KV head go together as far as the kernel reads the cache once for them; blocks of
  // heads are jobs of their own, or MLA with its one KV head would keep one thread busy.
  const std::size_t group = query.heads / query.kv_heads;
  const std::size_t blocks = (group + attention_block_heads - 1) / attention_block_heads;
  const std::size_t jobs = tokens.size() * query.kv_heads * blocks;
  context.parallel.for_ranges(jobs, 1, [&](std::size_t begin, std::size_t end, unsigned worker) {
    for (std::size_t job = begin; job < end; ++job) {
      // Later tokens see more positions: walking heads in the outer order mixes long and short
      // jobs.
      const std::size_t t = job % tokens.size();
      const std::size_t kv_head = job / tokens.size() / blocks;
      const std::size_t block = job / tokens.size() % blocks;
      const std::size_t head = kv_head * group + block * attention_block_heads;
      const KvCache& kv = tokens[t].state->kv;
      const std::uint32_t position = tokens[t].position;
      const bool windowed = query.window > 0 && position >= query.window;
      const AttentionArgs args = {
          .q = query.q + (t * query.heads + head) * query.head_dim,
          .heads = std::min(attention_block_heads, group - block * attention_block_heads),
          .head_dim = query.head_dim,
          .value_dim = query.value_dim,
          .k = kv.keys(layer, static_cast<std::uint32_t>(kv_head)),
          .v = kv.values(layer, static_cast<std::uint32_t>(kv_head)),
          .k_stride = kv.key_stride(layer),
          .v_stride = kv.value_stride(layer),
          .first = windowed ? position + 1 - query.window : 0,
          .last = position,
          .scale = query.scale,
          .sinks = query.sinks == nullptr ? nullptr : query.sinks + head,
          .out = query.out + t * query.out_stride + head * query.value_dim,
          .scratch = query.scratch + worker * attention_scratch_floats(),
          .origin = kv.origin(layer),
      };
      attention_kernel(context.kernels, kv.type())(args);
    }
  });
}

bool project_output(const BlockContext& context, const LayerWeights& weights, ActivationRows& out,
                    std::size_t count, float* projected) {
  const Matrix& output = weights.matrix(MatrixRole::attn_output);
  std::atomic<bool> finite = true;
  const Rounding rounding = context.rounding(output.type);
  if (rounding != Rounding::none)
    context.parallel.for_ranges(
        count, attention_token_grain, [&](std::size_t begin, std::size_t end, unsigned) {
          if (!out.quantize_rows(context.kernels, begin, end - begin, output.columns, rounding))
            finite = false;
        });
  linear(context, output, out, 0, count, projected, output.rows);
  add_bias(context, weights.vector(VectorRole::attn_output_bias), output.rows, count, projected,
           output.rows);
  return finite;
}

}  // namespace millrace
