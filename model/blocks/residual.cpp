#include "model/blocks/residual.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kernels/math.h"
#include "runtime/base/limits.h"

namespace millrace {

namespace {

constexpr std::size_t token_grain = 4;
constexpr std::size_t coefficient_rows = 4;  // of the coefficients' few, long rows

}  // namespace

std::size_t Residual::part_tokens(const Hparams& hparams, std::size_t tokens_max) noexcept {
  constexpr std::size_t part_max = 64;
  return hparams.streams.count == 1 ? 0 : std::min(tokens_max, part_max);
}

Residual::Residual(const Hparams& hparams, std::size_t tokens_max)
    : streams_(hparams.streams),
      width_(hparams.width),
      stride_(width_ * streams_.count),
      rms_eps_(hparams.rms_eps),
      part_(part_tokens(hparams, tokens_max)),
      x_(tokens_max * stride_) {
  if (streams_.count == 1) return;
  input_.resize(tokens_max * width_);
  mixes_.resize(tokens_max * streams_.mix_rows());
  normed_.resize(part_ * stride_);
  ones_.assign(stride_, 1.0F);
}

std::uint64_t Residual::bytes(const Hparams& hparams, std::size_t tokens_max) noexcept {
  const std::size_t stride = std::size_t{hparams.width} * hparams.streams.count;
  std::size_t floats = tokens_max * stride;
  if (hparams.streams.count > 1)
    floats += tokens_max * (hparams.width + hparams.streams.mix_rows()) +
              (part_tokens(hparams, tokens_max) + 1) * stride;
  return floats * sizeof(float);
}

template <class Body>
void Residual::for_tokens(const BlockContext& context, std::size_t count, Body body) {
  context.parallel.for_ranges(count, token_grain,
                              [&](std::size_t begin, std::size_t end, unsigned) {
                                for (std::size_t t = begin; t < end; ++t) body(t);
                              });
}

void Residual::spread(std::size_t t) noexcept {
  float* const x = start(t);
  for (std::size_t i = 1; i < streams_.count; ++i)
    std::memcpy(x + i * width_, x, width_ * sizeof(float));
}

// mixes_ of the tokens = matrix · rms(all streams).
void Residual::make_mixes(const BlockContext& context, const Matrix& matrix, std::size_t first,
                          std::size_t count) {
  const MatmulF32 matmul = context.kernels.matmul_f32[static_cast<std::size_t>(matrix.type)];
  for (std::size_t done = 0; done < count; done += part_) {
    const std::size_t part = std::min(part_, count - done);
    for_tokens(context, part, [&](std::size_t t) {
      context.kernels.rms_norm(start(first + done + t), ones_.data(), rms_eps_, stride_,
                               &normed_[t * stride_]);
    });
    float* const mixes = &mixes_[(first + done) * streams_.mix_rows()];
    context.parallel.for_ranges(
        matrix.rows, coefficient_rows, [&](std::size_t begin, std::size_t end, unsigned) {
          matmul({matrix.data + begin * matrix.row_bytes, matrix.row_bytes, end - begin, stride_},
                 {normed_.data(), stride_}, part, mixes + begin, streams_.mix_rows());
        });
  }
}

// x from the streams and the first n coefficients.
void Residual::make_input(const KernelTable& kernels, std::size_t t) noexcept {
  const float* const pre = &mixes_[t * streams_.mix_rows()];
  float* const input = &input_[t * width_];
  std::fill_n(input, width_, 0.0F);
  for (std::size_t i = 0; i < streams_.count; ++i)
    kernels.add_scaled(start(t) + i * width_, pre[i], width_, input);
}

void Residual::mix_coefficients(const KernelTable& kernels, const StreamWeights& weights,
                                float* z) const noexcept {
  const std::size_t n = streams_.count;
  const float* const base = weights.base;
  const float* const scale = weights.scale;
  for (std::size_t i = 0; i < n; ++i)
    z[i] = sigmoid_f32(scale[0] * z[i] + base[i]) + streams_.epsilon;
  for (std::size_t i = n; i < 2 * n; ++i) z[i] = 2 * sigmoid_f32(scale[1] * z[i] + base[i]);
  for (std::size_t i = 2 * n; i < 2 * n + n * n; ++i) z[i] = scale[2] * z[i] + base[i];
  balance(kernels, z + 2 * n);
}

// Makes all rows and columns of the mixing matrix sum to about one.
void Residual::balance(const KernelTable& kernels, float* mix) const noexcept {
  const std::size_t n = streams_.count;
  const float epsilon = streams_.epsilon;
  // Divides `n` elements, `step` apart, by their sum.
  const auto divide = [&](float* first, std::size_t step) {
    float sum = 0;
    for (std::size_t i = 0; i < n; ++i) sum += first[i * step];
    sum += epsilon;
    for (std::size_t i = 0; i < n; ++i) first[i * step] /= sum;
  };
  for (std::size_t row = 0; row < n; ++row) kernels.softmax(mix + row * n, n);
  for (std::size_t i = 0; i < n * n; ++i) mix[i] += epsilon;
  for (std::uint32_t iteration = 0; iteration < streams_.iterations; ++iteration) {
    for (std::size_t row = 0; iteration > 0 && row < n; ++row) divide(mix + row * n, 1);
    for (std::size_t column = 0; column < n; ++column) divide(mix + column, n);
  }
}

void Residual::open(const BlockContext& context, const StreamWeights& weights, std::size_t tokens) {
  if (streams_.count == 1) return;
  make_mixes(context, weights.matrix, 0, tokens);
  for_tokens(context, tokens, [&](std::size_t t) {
    mix_coefficients(context.kernels, weights, &mixes_[t * streams_.mix_rows()]);
    make_input(context.kernels, t);
  });
}

void Residual::close(const KernelTable& kernels, std::size_t t, const float* y) noexcept {
  if (streams_.count == 1) {
    kernels.add(y, width_, start(t));
    return;
  }
  constexpr std::size_t chunk_max = 256;  // columns of all streams that are mixed together
  std::array<float, limits::streams_max * chunk_max> old;
  const std::size_t n = streams_.count;
  const float* const post = &mixes_[t * streams_.mix_rows() + n];
  const float* const mix = post + n;
  for (std::size_t column = 0; column < width_; column += chunk_max) {
    const std::size_t chunk = std::min(chunk_max, width_ - column);
    for (std::size_t i = 0; i < n; ++i)
      std::memcpy(&old[i * chunk_max], start(t) + i * width_ + column, chunk * sizeof(float));
    for (std::size_t j = 0; j < n; ++j) {
      float* const to = start(t) + j * width_ + column;
      std::fill_n(to, chunk, 0.0F);
      for (std::size_t i = 0; i < n; ++i)
        kernels.add_scaled(&old[i * chunk_max], mix[i * n + j], chunk, to);
      kernels.add_scaled(y + column, post[j], chunk, to);
    }
  }
}

void Residual::open_head(const BlockContext& context, const StreamWeights& weights,
                         std::size_t first, std::size_t count) {
  if (streams_.count == 1) return;
  make_mixes(context, weights.matrix, first, count);
  for_tokens(context, count, [&](std::size_t i) {
    const std::size_t t = first + i;
    float* const z = &mixes_[t * streams_.mix_rows()];
    for (std::size_t k = 0; k < streams_.count; ++k)
      z[k] = sigmoid_f32(weights.scale[0] * z[k] + weights.base[k]) + streams_.epsilon;
    make_input(context.kernels, t);
  });
}

}  // namespace millrace
