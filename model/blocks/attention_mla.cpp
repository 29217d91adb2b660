#include "model/blocks/attention_mla.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/base/parallel.h"

namespace millrace {

namespace {

constexpr std::size_t part_tokens_max = 64;

std::size_t part_tokens(std::size_t tokens) noexcept { return std::min(tokens, part_tokens_max); }

}  // namespace

MlaScratch::MlaScratch(const MlaShape& widest, std::size_t tokens, std::size_t workers)
    : part(part_tokens(tokens)),
      q_latent(widest.q_latent > 0 ? tokens : 0, widest.q_latent),
      latent(tokens * widest.key()),
      query(part * widest.heads, widest.head_dim()),
      absorbed(part * widest.heads * widest.key()),
      mixed(part * widest.heads, widest.kv_latent),
      out(tokens, std::size_t{widest.heads} * widest.value_dim),
      row(workers * widest.kv_latent),
      kernel(workers * attention_scratch_floats()) {}

std::size_t MlaScratch::bytes(const MlaShape& widest, std::size_t tokens,
                              std::size_t workers) noexcept {
  const std::size_t rows = part_tokens(tokens) * widest.heads;
  const std::size_t floats =
      (tokens + rows) * widest.key() + workers * (widest.kv_latent + attention_scratch_floats());
  return floats * sizeof(float) +
         ActivationRows::bytes(widest.q_latent > 0 ? tokens : 0, widest.q_latent) +
         ActivationRows::bytes(rows, widest.head_dim()) +
         ActivationRows::bytes(rows, widest.kv_latent) +
         ActivationRows::bytes(tokens, std::size_t{widest.heads} * widest.value_dim);
}

namespace {

// One pass of the block; the members are its arguments.
class MlaPass {
 public:
  MlaPass(const BlockContext& context, const MlaShape& shape, const LayerWeights& weights,
          LayerIndex layer, const RopeRows& rope, MlaScratch& scratch)
      : context_(context),
        kernels_(context.kernels),
        shape_(shape),
        weights_(weights),
        layer_(layer),
        rope_(rope),
        scratch_(scratch) {}

  // Normed latent and rotated key of each token, into the cache.
  void store_latents(std::span<const TokenPlace> tokens, const ActivationRows& normed) {
    linear(context_, weights_.matrix(MatrixRole::attn_kv_a), normed, 0, tokens.size(),
           scratch_.latent.data(), shape_.key());
    make_cache_room(tokens, layer_);
    const float* const norm = weights_.vector(VectorRole::attn_kv_a_norm);
    for_tokens(tokens.size(), [&](std::size_t t) {
      float* const row = scratch_.latent.data() + t * shape_.key();
      kernels_.rms_norm(row, norm, shape_.rms_eps, shape_.kv_latent, row);
      kernels_.rope_norm(row + shape_.kv_latent, 1, shape_.rotary, shape_.rotary, rope_.cosines(t),
                         rope_.sines(t));
      tokens[t].state->kv.store(kernels_, layer_, tokens[t].position, row, nullptr);
    });
  }

  // False if a value is NaN or infinite.
  bool query_latents(std::size_t tokens, const ActivationRows& normed) {
    ActivationRows& latent = scratch_.q_latent;
    linear(context_, weights_.matrix(MatrixRole::attn_q_a), normed, 0, tokens, latent.row(0),
           latent.columns());
    const Rounding rounding = context_.rounding(weights_.matrix(MatrixRole::attn_q_b).type);
    std::atomic<bool> finite = true;
    for_tokens(tokens, [&](std::size_t t) {
      kernels_.rms_norm(latent.row(t), weights_.vector(VectorRole::attn_q_a_norm), shape_.rms_eps,
                        shape_.q_latent, latent.row(t));
      if (!latent.quantize_rows(kernels_, t, 1, shape_.q_latent, rounding)) finite = false;
    });
    return finite;
  }

  // Tokens first .. of the batch, at most a part. False if a value is NaN or infinite.
  bool attend_part(std::span<const TokenPlace> tokens, std::size_t first,
                   const ActivationRows& normed) {
    const std::size_t count = tokens.size();
    const Matrix& from_latent = weights_.matrix(MatrixRole::attn_q_b);
    const bool latent = from_latent.present();
    linear(context_, latent ? from_latent : weights_.matrix(MatrixRole::attn_q),
           latent ? scratch_.q_latent : normed, first, count, scratch_.query.row(0),
           shape_.heads * shape_.head_dim());
    for_tokens(count, [&](std::size_t t) {
      kernels_.rope_norm(scratch_.query.row(t * shape_.heads) + shape_.nope, shape_.heads,
                         shape_.head_dim(), shape_.rotary, rope_.cosines(first + t),
                         rope_.sines(first + t));
    });
    if (!absorb(count)) return false;
    attend(context_, layer_, tokens,
           {.heads = shape_.heads,
            .kv_heads = 1,
            .head_dim = static_cast<std::uint32_t>(shape_.key()),
            .value_dim = shape_.kv_latent,
            .scale = shape_.scale,
            .q = scratch_.absorbed.data(),
            .out = scratch_.mixed.row(0),
            .out_stride = std::size_t{shape_.heads} * shape_.kv_latent,
            .scratch = scratch_.kernel.data()});
    return make_values(count, first);
  }

 private:
  template <class Body>
  void for_tokens(std::size_t tokens, Body body) {
    context_.parallel.for_ranges(tokens, attention_token_grain,
                                 [&](std::size_t begin, std::size_t end, unsigned) {
                                   for (std::size_t t = begin; t < end; ++t) body(t);
                                 });
  }
  // Heads are shared over the threads; each head's products run in one.
  template <class Body>
  void for_heads(Body body) {
    context_.parallel.for_ranges(shape_.heads, 1,
                                 [&](std::size_t begin, std::size_t end, unsigned worker) {
                                   for (std::size_t h = begin; h < end; ++h) body(h, worker);
                                 });
  }
  // All heads' rows of `count` tokens, as the matrix that takes them wants it.
  bool quantize(ActivationRows& rows, std::size_t count, const Matrix& matrix) {
    const Rounding rounding = context_.rounding(matrix.type);
    if (rounding == Rounding::none) return true;
    std::atomic<bool> finite = true;
    for_tokens(count, [&](std::size_t t) {
      if (!rows.quantize_rows(kernels_, t * shape_.heads, shape_.heads, matrix.columns, rounding))
        finite = false;
    });
    return finite;
  }
  float* absorbed(std::size_t t, std::size_t head) {
    return scratch_.absorbed.data() + (t * shape_.heads + head) * shape_.key();
  }

  // Queries into the latent's space, beside their rotated part.
  bool absorb(std::size_t count) {
    const Matrix& keys = weights_.matrix(MatrixRole::attn_k_b);
    if (keys.present() && !quantize(scratch_.query, count, keys)) return false;
    for_heads([&](std::size_t head, unsigned worker) {
      if (keys.present()) absorb_transposed(keys, count, head);
      else absorb_rows(weights_.matrix(MatrixRole::attn_kv_b), count, head, worker);
      for (std::size_t t = 0; t < count; ++t)
        std::memcpy(absorbed(t, head) + shape_.kv_latent,
                    scratch_.query.row(t * shape_.heads + head) + shape_.nope,
                    shape_.rotary * sizeof(float));
    });
    return true;
  }

  void absorb_transposed(const Matrix& keys, std::size_t count, std::size_t head) {
    SerialParallel serial;
    linear({kernels_, serial, context_.mode}, keys.slice(head * shape_.kv_latent, shape_.kv_latent),
           scratch_.query, head, count, absorbed(0, head), shape_.heads * shape_.key(),
           shape_.heads);
  }

  // The sum over i of qn[i] times row i of the head's key matrix, i ascending.
  void absorb_rows(const Matrix& both, std::size_t count, std::size_t head, unsigned worker) {
    float* const row = scratch_.row.data() + std::size_t{worker} * shape_.kv_latent;
    const std::size_t first = head * (shape_.nope + shape_.value_dim);
    for (std::size_t t = 0; t < count; ++t) std::fill_n(absorbed(t, head), shape_.kv_latent, 0.0F);
    for (std::size_t i = 0; i < shape_.nope; ++i) {
      decode_matrix_row(kernels_, both, first + i, row);
      for (std::size_t t = 0; t < count; ++t)
        kernels_.add_scaled(row, scratch_.query.row(t * shape_.heads + head)[i], shape_.kv_latent,
                            absorbed(t, head));
    }
  }

  // Each head's values from its mixture of latents, into the rows of the output.
  bool make_values(std::size_t count, std::size_t first) {
    const Matrix& halves = weights_.matrix(MatrixRole::attn_v_b);
    const Matrix& matrix = halves.present() ? halves : weights_.matrix(MatrixRole::attn_kv_b);
    const std::size_t before = halves.present() ? 0 : shape_.nope;  // rows of a head's keys
    if (!quantize(scratch_.mixed, count, matrix)) return false;
    for_heads([&](std::size_t head, unsigned) {
      SerialParallel serial;
      linear({kernels_, serial, context_.mode},
             matrix.slice(head * (before + shape_.value_dim) + before, shape_.value_dim),
             scratch_.mixed, head, count, scratch_.out.row(first) + head * shape_.value_dim,
             scratch_.out.columns(), shape_.heads);
    });
    return true;
  }

  const BlockContext& context_;
  const KernelTable& kernels_;
  const MlaShape& shape_;
  const LayerWeights& weights_;
  const LayerIndex layer_;
  const RopeRows& rope_;
  MlaScratch& scratch_;
};

}  // namespace

bool attention_mla(const BlockContext& context, const MlaShape& shape, const LayerWeights& weights,
                   LayerIndex layer, std::span<const TokenPlace> tokens, const RopeRows& rope,
                   const ActivationRows& normed, MlaScratch& scratch, float* projected) {
  MlaPass pass(context, shape, weights, layer, rope, scratch);
  pass.store_latents(tokens, normed);
  if (weights.matrix(MatrixRole::attn_q_b).present() && !pass.query_latents(tokens.size(), normed))
    return false;
  for (std::size_t first = 0; first < tokens.size(); first += scratch.part) {
    const std::size_t count = std::min(scratch.part, tokens.size() - first);
    if (!pass.attend_part(tokens.subspan(first, count), first, normed)) return false;
  }
  return project_output(context, weights, scratch.out, tokens.size(), projected);
}

}  // namespace millrace
