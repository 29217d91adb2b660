#include "model/blocks/attention_common.h"

#include <algorithm>
#include <atomic>

namespace millrace {

void make_cache_room(std::span<const TokenPlace> tokens, LayerIndex layer) {
  if (!tokens.front().state->kv.moves(layer)) return;
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

namespace {

// The kernel for that type, of one token or of several.
template <class Kernels>
auto kernel_of(const Kernels& kernels, KvType type) noexcept -> decltype(kernels.attention_f16) {
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

}  // namespace

void (*attention_kernel(const KernelTable& kernels, KvType type) noexcept)(const AttentionArgs&) {
  return kernel_of(kernels, type);
}

namespace {

// Heads of a KV head go together as far as the kernel reads the cache once for them; blocks of
// heads are jobs of their own, or MLA with its one KV head would keep one thread busy. Neighbouring
// tokens go together too where their scratch allows it and enough jobs remain.
class Attend {
 public:
  Attend(const BlockContext& context, LayerIndex layer, std::span<const TokenPlace> tokens,
         const CacheQuery& query)
      : context_(context), layer_(layer), tokens_(tokens), query_(query) {
    const std::size_t single_jobs = tokens.size() * query.kv_heads * blocks_;
    const bool fits = query.head_dim % 16 == 0 &&
                      query.scratch_floats >= attention_run_floats(query.head_dim, query.value_dim);
    if (context.panels.kernels(0) == nullptr || !fits) return;
    shared_ = shared_positions();
    run_ = shared_ > 0 ? shared_run()
                       : std::clamp<std::size_t>(single_jobs / jobs_min, 1, attention_tokens_max);
  }

  void run() {
    const std::size_t runs = (tokens_.size() + run_ - 1) / run_;
    const std::size_t jobs = runs * query_.kv_heads * blocks_;
    context_.parallel.for_ranges(jobs, 1, [&](std::size_t begin, std::size_t end, unsigned worker) {
      for (std::size_t job = begin; job < end; ++job) {
        // Later tokens see more positions: walking heads in the outer order mixes long and short
        // jobs.
        const std::size_t first = job % runs * run_;
        const std::size_t kv_head = job / runs / blocks_;
        const std::size_t head = kv_head * group_ + job / runs % blocks_ * attention_block_heads;
        run_job(first, std::min(run_, tokens_.size() - first), kv_head, head, worker);
      }
    });
  }

 private:
  static constexpr std::size_t jobs_min = 64;
  static constexpr std::size_t shared_jobs_min = 2;  // of each worker

  // Whole parts with which all sequences of the batch begin, if each has one token in it.
  std::size_t shared_positions() const {
    const SequenceState& begun = *tokens_.front().state;
    if (tokens_.size() < 2 || query_.window > 0 || begun.kv.moves(layer_)) return 0;
    std::uint32_t positions = Lineage::all;
    for (std::size_t t = 0; t < tokens_.size(); ++t) {
      const SequenceState& state = *tokens_[t].state;
      const bool again = t > 0 && tokens_[t - 1].state == &state;
      if (again || state.lineage.line != begun.lineage.line) return 0;
      positions = std::min({positions, state.lineage.positions, tokens_[t].position});
    }
    return positions / attention_part_positions * attention_part_positions;
  }

  // Even runs, as long as they may be and leave each worker something to do.
  std::size_t shared_run() const {
    const std::size_t jobs = query_.kv_heads * blocks_;
    const std::size_t wanted = shared_jobs_min * context_.parallel.workers();
    const std::size_t longest = std::min(tokens_.size(), attention_tokens_max);
    const std::size_t runs =
        std::max((tokens_.size() + longest - 1) / longest, (wanted + jobs - 1) / jobs);
    return std::max<std::size_t>(1, (tokens_.size() + runs - 1) / runs);
  }

  // Tokens of sequences that begin alike.
  void run_shared(std::size_t first, std::size_t count, std::size_t kv_head, std::size_t head,
                  unsigned worker) const {
    AttentionOwn own[attention_tokens_max];
    for (std::size_t i = 0; i < count; ++i) {
      const TokenPlace& place = tokens_[first + i];
      own[i] = {place.state->kv.keys(layer_, static_cast<std::uint32_t>(kv_head)),
                place.state->kv.values(layer_, static_cast<std::uint32_t>(kv_head)),
                place.position};
    }
    const AttentionRun run{.tokens = count,
                           .q_stride = std::size_t{query_.heads} * query_.head_dim,
                           .out_stride = query_.out_stride,
                           .window = 0,
                           .own = own,
                           .shared = shared_};
    kernel_of(*context_.panels.kernels(0), tokens_[first].state->kv.type())(
        args_of(first, kv_head, head, worker), run);
  }

  // Heads from `head` on of tokens [first, first + count), those of a sequence at once.
  void run_job(std::size_t first, std::size_t count, std::size_t kv_head, std::size_t head,
               unsigned worker) const {
    if (shared_ > 0) return run_shared(first, count, kv_head, head, worker);
    const std::size_t end = first + count;
    while (first < end) {
      std::size_t next = first + 1;
      while (next < end && tokens_[next].state == tokens_[first].state) ++next;
      const AttentionArgs args = args_of(first, kv_head, head, worker);
      const KvType type = tokens_[first].state->kv.type();
      if (next == first + 1) {
        kernel_of(context_.kernels, type)(args);
      } else {
        const AttentionRun run{.tokens = next - first,
                               .q_stride = std::size_t{query_.heads} * query_.head_dim,
                               .out_stride = query_.out_stride,
                               .window = query_.window};
        kernel_of(*context_.panels.kernels(0), type)(args, run);
      }
      first = next;
    }
  }

  AttentionArgs args_of(std::size_t t, std::size_t kv_head, std::size_t head,
                        unsigned worker) const {
    const KvCache& kv = tokens_[t].state->kv;
    const std::uint32_t position = tokens_[t].position;
    const bool windowed = query_.window > 0 && position >= query_.window;
    return {
        .q = query_.q + (t * query_.heads + head) * query_.head_dim,
        .heads = std::min(attention_block_heads, (kv_head + 1) * group_ - head),
        .head_dim = query_.head_dim,
        .value_dim = query_.value_dim,
        .k = kv.keys(layer_, static_cast<std::uint32_t>(kv_head)),
        .v = kv.values(layer_, static_cast<std::uint32_t>(kv_head)),
        .k_stride = kv.key_stride(layer_),
        .v_stride = kv.value_stride(layer_),
        .first = windowed ? position + 1 - query_.window : 0,
        .last = position,
        .scale = query_.scale,
        .sinks = query_.sinks == nullptr ? nullptr : query_.sinks + head,
        .out = query_.out + t * query_.out_stride + head * query_.value_dim,
        .scratch = query_.scratch + worker * query_.scratch_floats,
        .origin = kv.origin(layer_),
    };
  }

  const BlockContext& context_;
  const LayerIndex layer_;
  const std::span<const TokenPlace> tokens_;
  const CacheQuery& query_;
  const std::size_t group_ = query_.heads / query_.kv_heads;
  const std::size_t blocks_ = (group_ + attention_block_heads - 1) / attention_block_heads;
  std::size_t run_ = 1;     // tokens that go together
  std::size_t shared_ = 0;  // positions that all sequences have alike
};

}  // namespace

void attend(const BlockContext& context, LayerIndex layer, std::span<const TokenPlace> tokens,
            const CacheQuery& query) {
  Attend(context, layer, tokens, query).run();
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
