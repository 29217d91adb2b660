// The residual of a batch of tokens between its layers: one row per token to which sublayers add,
// or several streams (hyper-connections) that are mixed around each sublayer. With n streams X_i of
// a token, all in float32:
//   z = W·rms([X_0; …; X_n-1])                   rms over all values, without weights
//   pre_i  = sigmoid(scale_0 * z_i + base_i) + epsilon
//   post_i = 2 * sigmoid(scale_1 * z_(n+i) + base_(n+i))
//   A_rc   = scale_2 * z_(2n+rn+c) + base_(2n+rn+c)
//   C = softmax of each row of A, + epsilon; then columns, and for each further iteration rows and
//   columns, are divided by (their sum + epsilon)
//   x = sum of pre_i * X_i                       the sublayer's input, i ascending by fma
//   X'_j = sum of C_ij * X_i, then post_j * y    y the sublayer's output, i ascending by fma
// Owned by BatchWalk; buffers are allocated once. One batch at a time; input() and close() of
// different tokens may run in several threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/blocks/linear.h"
#include "model/hparams.h"
#include "model/weights.h"

namespace millrace {

// Where the coefficients around a sublayer, or in front of the head, come from.
struct StreamWeights {
  Matrix matrix;       // streams x width columns; mix_rows() rows, or one per stream for the head
  const float* base;   // one value per row
  const float* scale;  // three values, or one for the head
};

class Residual {
 public:
  Residual(const Hparams& hparams, std::size_t tokens_max);
  static std::uint64_t bytes(const Hparams& hparams, std::size_t tokens_max) noexcept;

  // Where token t's embedding row goes; spread() then makes all streams of it.
  float* start(std::size_t t) noexcept { return &x_[t * stride_]; }
  void spread(std::size_t t) noexcept;

  // Before a sublayer: makes the inputs of `tokens` tokens. One stream: nothing to do.
  void open(const BlockContext& context, const StreamWeights& weights, std::size_t tokens);
  const float* input(std::size_t t) const noexcept {
    return streams_.count == 1 ? &x_[t * stride_] : &input_[t * width_];
  }
  // After it: takes up its output y of token t (width values).
  void close(const KernelTable& kernels, std::size_t t, const float* y) noexcept;

  // Makes the inputs of tokens first .. first + count - 1 for the output norm.
  void open_head(const BlockContext& context, const StreamWeights& weights, std::size_t first,
                 std::size_t count);

 private:
  static std::size_t part_tokens(const Hparams& hparams, std::size_t tokens_max) noexcept;
  void make_mixes(const BlockContext& context, const Matrix& matrix, std::size_t first,
                  std::size_t count);
  void make_input(const KernelTable& kernels, std::size_t t) noexcept;
  void mix_coefficients(const KernelTable& kernels, const StreamWeights& weights,
                        float* z) const noexcept;
  void balance(const KernelTable& kernels, float* mix) const noexcept;
  template <class Body>
  static void for_tokens(const BlockContext& context, std::size_t count, Body body);

  Streams streams_;
  std::size_t width_, stride_;  // stride_: all streams of a token
  float rms_eps_;
  std::size_t part_;              // tokens that are normed together
  std::vector<float> x_, input_;  // tokens x stride_, tokens x width_
  std::vector<float> mixes_;      // tokens x mix_rows: pre, post, C
  std::vector<float> normed_;     // part_ x stride_
  std::vector<float> ones_;       // stride_
};

}  // namespace millrace
