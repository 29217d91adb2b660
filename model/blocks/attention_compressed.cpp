#include "model/blocks/attention_compressed.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "runtime/base/parallel.h"

namespace millrace {

namespace {

constexpr std::size_t rows_of_part_max = 64;

std::size_t rows_of_part(std::size_t tokens) noexcept { return std::min(tokens, rows_of_part_max); }

std::size_t group_columns(const CompressedShape& shape) noexcept {
  return shape.columns() / shape.groups;
}

std::size_t pooled_columns(const CompressedShape& shape) noexcept {
  return shape.ratio == 0 ? 0 : std::max(shape.head_dim, shape.index_dim);
}

// Sizes in floats of the buffers that exist where rows are chosen.
struct IndexSizes {
  std::size_t query = 0, weights = 0, products = 0, chosen = 0, gathered = 0;

  IndexSizes(const CompressedShape& shape, std::size_t part, std::size_t workers) {
    if (!shape.indexed) return;
    query = part * shape.index_heads * shape.index_dim + row_query_slack;
    weights = part * shape.index_heads;
    products = workers * row_choice_scratch_floats(shape.index_heads);
    chosen = part * shape.index_top_k;
    gathered = workers * shape.index_top_k * row_floats(shape);
  }
  // No type of cache needs more.
  static std::size_t row_floats(const CompressedShape& shape) noexcept {
    return std::max(cache_rows::bytes(shape.head_dim, KvType::f32),
                    round_up(cache_rows::bytes(shape.head_dim, KvType::q8_0), sizeof(float))) /
           sizeof(float);
  }
};

}  // namespace

CompressedScratch::CompressedScratch(const CompressedShape& shape, std::size_t channels,
                                     std::size_t tokens, std::size_t workers)
    : part(rows_of_part(tokens)),
      q_latent(part, shape.q_latent),
      row(part * shape.head_dim),
      query(part * shape.columns()),
      out(part * shape.groups, group_columns(shape)),
      low(part, std::size_t{shape.groups} * shape.rank),
      compressor(shape.ratio == 0 ? 0 : part, channels, pooled_columns(shape), shape.rotary,
                 workers),
      turned(workers * (shape.rotary / 2)),
      ones(shape.head_dim, 1.0F),
      kernel(workers * attention_scratch_floats()) {
  const IndexSizes sizes(shape, part, workers);
  index_query.resize(sizes.query);
  index_weights.resize(sizes.weights);
  index_products.resize(sizes.products);
  chosen.resize(sizes.chosen);
  gathered.resize(sizes.gathered);
}

std::size_t CompressedScratch::bytes(const CompressedShape& shape, std::size_t channels,
                                     std::size_t tokens, std::size_t workers) noexcept {
  const std::size_t part = rows_of_part(tokens);
  const IndexSizes sizes(shape, part, workers);
  const std::size_t floats = part * (shape.head_dim + shape.columns()) + sizes.query +
                             sizes.weights + sizes.products + sizes.chosen + sizes.gathered +
                             workers * (shape.rotary / 2 + attention_scratch_floats()) +
                             shape.head_dim;
  return floats * sizeof(float) + ActivationRows::bytes(part, shape.q_latent) +
         ActivationRows::bytes(part * shape.groups, group_columns(shape)) +
         ActivationRows::bytes(part, std::size_t{shape.groups} * shape.rank) +
         CompressorScratch::bytes(shape.ratio == 0 ? 0 : part, channels, pooled_columns(shape),
                                  shape.rotary, workers);
}

namespace {

// One part of a batch: tokens first .. of it. The members are its arguments.
class CompressedPass {
 public:
  CompressedPass(const BlockContext& context, const CompressedShape& shape,
                 const LayerWeights& weights, LayerIndex layer, std::span<const TokenPlace> tokens,
                 std::size_t first, const RopeRows& rope, const ActivationRows& normed,
                 CompressedScratch& scratch)
      : context_(context),
        kernels_(context.kernels),
        shape_(shape),
        weights_(weights),
        layer_(layer),
        tokens_(tokens),
        first_(first),
        rope_(rope),
        normed_(normed),
        scratch_(scratch) {}

  // In this order; false if a value is NaN or infinite.
  bool run(float* projected) {
    store_rows();
    if (shape_.ratio > 0) compress_rows();
    if (!make_latents()) return false;
    make_queries();
    if (shape_.indexed && !choose()) return false;
    attend();
    return project_groups() &&
           project_output(context_, weights_, scratch_.low, tokens_.size(), projected);
  }

 private:
  template <class Body>
  void for_tokens(Body body) {
    context_.parallel.for_ranges(tokens_.size(), attention_token_grain,
                                 [&](std::size_t begin, std::size_t end, unsigned worker) {
                                   for (std::size_t t = begin; t < end; ++t) body(t, worker);
                                 });
  }
  // The last `rotary` values of `count` vectors of `dim`.
  void rotate_tails(float* x, std::size_t count, std::size_t dim, std::size_t t) {
    kernels_.rope_norm(x + dim - shape_.rotary, count, dim, shape_.rotary,
                       rope_.cosines(first_ + t), rope_.sines(first_ + t));
  }
  float* query(std::size_t t) { return &scratch_.query[t * shape_.columns()]; }

  void store_rows() {
    linear(context_, weights_.matrix(MatrixRole::attn_kv_a), normed_, first_, tokens_.size(),
           scratch_.row.data(), shape_.head_dim);
    for_tokens([&](std::size_t t, unsigned) {
      float* const row = &scratch_.row[t * shape_.head_dim];
      kernels_.rms_norm(row, weights_.vector(VectorRole::attn_kv_a_norm), shape_.rms_eps,
                        shape_.head_dim, row);
      rotate_tails(row, 1, shape_.head_dim, t);
      tokens_[t].state->kv.store(kernels_, layer_, tokens_[t].position, row, nullptr);
    });
  }

  void compress_rows() {
    const CompressorShape shape{.rotary = shape_.rotary, .rms_eps = shape_.rms_eps};
    compress(context_, pooled_compressor, shape, weights_, layer_, tokens_, first_, normed_, rope_,
             scratch_.compressor);
    if (shape_.indexed)
      compress(context_, index_compressor, shape, weights_, layer_, tokens_, first_, normed_, rope_,
               scratch_.compressor);
  }

  bool make_latents() {
    ActivationRows& latent = scratch_.q_latent;
    linear(context_, weights_.matrix(MatrixRole::attn_q_a), normed_, first_, tokens_.size(),
           latent.row(0), latent.columns());
    Rounding rounding = context_.rounding(weights_.matrix(MatrixRole::attn_q_b).type);
    if (shape_.indexed)
      rounding = rounding | context_.rounding(weights_.matrix(MatrixRole::index_q).type);
    std::atomic<bool> finite = true;
    for_tokens([&](std::size_t t, unsigned) {
      kernels_.rms_norm(latent.row(t), weights_.vector(VectorRole::attn_q_a_norm), shape_.rms_eps,
                        shape_.q_latent, latent.row(t));
      if (!latent.quantize_rows(kernels_, t, 1, shape_.q_latent, rounding)) finite = false;
    });
    return finite;
  }

  void make_queries() {
    linear(context_, weights_.matrix(MatrixRole::attn_q_b), scratch_.q_latent, 0, tokens_.size(),
           scratch_.query.data(), shape_.columns());
    for_tokens([&](std::size_t t, unsigned) {
      float* const heads = query(t);
      for (std::size_t h = 0; h < shape_.heads; ++h)
        kernels_.rms_norm(heads + h * shape_.head_dim, scratch_.ones.data(), shape_.rms_eps,
                          shape_.head_dim, heads + h * shape_.head_dim);
      rotate_tails(heads, shape_.heads, shape_.head_dim, t);
    });
  }

  std::uint32_t visible(std::size_t t) const {
    return tokens_[t].state->kv.pooled(layer_).visible(tokens_[t].position);
  }
  bool has_choice(std::size_t t) const { return shape_.indexed && visible(t) > shape_.index_top_k; }

  // The pooled rows of the tokens that see too many of them.
  bool choose() {
    const std::size_t count = tokens_.size();
    bool any = false;
    for (std::size_t t = 0; t < count; ++t) any |= has_choice(t);
    if (!any) return true;
    const std::size_t columns = std::size_t{shape_.index_heads} * shape_.index_dim;
    linear(context_, weights_.matrix(MatrixRole::index_q), scratch_.q_latent, 0, count,
           scratch_.index_query.data(), columns);
    linear_f32(context_, weights_.matrix(MatrixRole::index_weights), normed_, first_, count,
               scratch_.index_weights.data(), shape_.index_heads);
    const float factor = 1.0F / std::sqrt(static_cast<float>(shape_.index_dim) *
                                          static_cast<float>(shape_.index_heads));
    for (std::size_t t = 0; t < count; ++t) {
      if (!has_choice(t)) continue;
      float* const q = &scratch_.index_query[t * columns];
      float* const heads = &scratch_.index_weights[t * shape_.index_heads];
      rotate_tails(q, shape_.index_heads, shape_.index_dim, t);
      for (std::size_t h = 0; h < shape_.index_heads; ++h) heads[h] *= factor;
      KvCache& kv = tokens_[t].state->kv;
      if (!choose_rows(context_,
                       {.heads = shape_.index_heads,
                        .dim = shape_.index_dim,
                        .top_k = shape_.index_top_k,
                        .q = q,
                        .weights = heads},
                       kv.index(layer_), visible(t), kv.row_scores(), kv.row_order(),
                       scratch_.index_products.data(), &scratch_.chosen[t * shape_.index_top_k]))
        return false;
    }
    return true;
  }

  // With few tokens, blocks of heads are jobs of their own.
  void attend() {
    const bool whole = tokens_.size() >= 2 * context_.parallel.workers();
    const std::size_t step = whole ? shape_.heads : attention_block_heads;
    const std::size_t blocks = (shape_.heads + step - 1) / step;
    context_.parallel.for_ranges(
        tokens_.size() * blocks, 1, [&](std::size_t begin, std::size_t end, unsigned worker) {
          for (std::size_t job = begin; job < end; ++job) {
            const std::size_t head = job % blocks * step;
            attend_heads(job / blocks, head, std::min(step, shape_.heads - head), worker);
          }
        });
  }

  void attend_heads(std::size_t t, std::size_t head, std::size_t heads, unsigned worker) {
    const KvCache& kv = tokens_[t].state->kv;
    const std::uint32_t position = tokens_[t].position;
    AttentionArgs args = {.q = query(t) + head * shape_.head_dim,
                          .heads = heads,
                          .head_dim = shape_.head_dim,
                          .value_dim = shape_.head_dim,
                          .k = kv.keys(layer_, 0),
                          .v = kv.values(layer_, 0),
                          .k_stride = kv.key_stride(layer_),
                          .v_stride = kv.value_stride(layer_),
                          .first = position >= shape_.window ? position + 1 - shape_.window : 0,
                          .last = position,
                          .scale = shape_.scale,
                          .sinks = weights_.vector(VectorRole::attn_sinks) + head,
                          .out = scratch_.out.row(t * shape_.groups) + head * shape_.head_dim,
                          .scratch = &scratch_.kernel[worker * attention_scratch_floats()],
                          .origin = kv.origin(layer_)};
    if (shape_.ratio > 0) add_pooled(t, worker, args);
    attention_kernel(kernels_, kv.type())(args);
    float* const back = &scratch_.turned[worker * rope_.pairs];
    for (std::size_t i = 0; i < rope_.pairs; ++i) back[i] = -rope_.sines(first_ + t)[i];
    kernels_.rope_norm(args.out + shape_.head_dim - shape_.rotary, heads, shape_.head_dim,
                       shape_.rotary, rope_.cosines(first_ + t), back);
  }

  // All pooled rows that are visible, or copies of the chosen ones, one behind the other.
  void add_pooled(std::size_t t, unsigned worker, AttentionArgs& args) {
    const CompressedRows& rows = tokens_[t].state->kv.pooled(layer_);
    args.more = rows.row(0);
    args.more_count = visible(t);
    if (!has_choice(t)) return;
    auto* const copies = reinterpret_cast<std::byte*>(
        &scratch_.gathered[worker * shape_.index_top_k * IndexSizes::row_floats(shape_)]);
    const std::uint32_t* const chosen = &scratch_.chosen[t * shape_.index_top_k];
    for (std::size_t i = 0; i < shape_.index_top_k; ++i)
      std::memcpy(copies + i * rows.row_bytes(), rows.row(chosen[i]), rows.row_bytes());
    args.more = copies;
    args.more_count = shape_.index_top_k;
  }

  // Each group's heads to its part of `low`.
  bool project_groups() {
    const Matrix& matrix = weights_.matrix(MatrixRole::attn_output_a);
    const std::size_t count = tokens_.size();
    const Rounding rounding = context_.rounding(matrix.type);
    std::atomic<bool> finite = true;
    if (rounding != Rounding::none)
      for_tokens([&](std::size_t t, unsigned) {
        if (!scratch_.out.quantize_rows(kernels_, t * shape_.groups, shape_.groups, matrix.columns,
                                        rounding))
          finite = false;
      });
    for (std::size_t group = 0; group < shape_.groups; ++group) {
      linear(context_, matrix.slice(group * shape_.rank, shape_.rank), scratch_.out, group, count,
             scratch_.low.row(0) + group * shape_.rank, scratch_.low.columns(), shape_.groups);
    }
    return finite;
  }

  const BlockContext& context_;
  const KernelTable& kernels_;
  const CompressedShape& shape_;
  const LayerWeights& weights_;
  const LayerIndex layer_;
  const std::span<const TokenPlace> tokens_;
  const std::size_t first_;
  const RopeRows& rope_;
  const ActivationRows& normed_;
  CompressedScratch& scratch_;
};

}  // namespace

bool attention_compressed(const BlockContext& context, const CompressedShape& shape,
                          const LayerWeights& weights, LayerIndex layer,
                          std::span<const TokenPlace> tokens, const RopeRows& rope,
                          const ActivationRows& normed, CompressedScratch& scratch,
                          float* projected) {
  const std::size_t width = weights.matrix(MatrixRole::attn_output).rows;
  make_cache_room(tokens, layer);
  for (std::size_t first = 0; first < tokens.size(); first += scratch.part) {
    const std::size_t count = std::min(scratch.part, tokens.size() - first);
    if (!CompressedPass(context, shape, weights, layer, tokens.subspan(first, count), first, rope,
                        normed, scratch)
             .run(projected + first * width))
      return false;
  }
  return true;
}

}  // namespace millrace
