// The kernels' interface: one table of function pointers per ISA, all giving the same bits
// (the canonical arithmetic, below). Raw pointers and counts only. All functions are pure
// but for their outputs, allocate nothing, and may run in any thread. Pointers need no alignment;
// outputs never overlap inputs unless stated.
//
// Canonical arithmetic:
//   activations
//     per 32 values (per 256 for super-blocks): d = max|x| / 127,
//     q = round-half-even(x * (127 / max|x|)); max|x| < 2^-100: d = q = 0
//   quantized dot
//     acc[b mod 16] = fma(float(S[b]), fl(dw[b] * da[b]), acc[b mod 16]), blocks b ascending, S[b]
//     the exact integer sum of the block, in a super-block with the integer sub-scales multiplied
//     in; then acc[i] += acc[i+8], then 4, 2, 1
//   minima
//     16 accumulators of their own, acc'[b mod 16] = fma(float(M[b]), fl(mw[b] * da[b]), ...), M[b]
//     the sum of the block's q, in a super-block with the integer sub-minima multiplied in; before
//     the tree acc[i] += acc'[i] (Q4_1, Q5_1) or acc[i] -= acc'[i] (K-quants)
//   float dot
//     acc[i mod 16] = fma(w[i], x[i], acc[i mod 16]), the same tree
//   bound
//     |y - sum w x| <= (ceil(n / 16) + 7) * 2^-24 * sum |w x|, w and x as decoded and rounded, n
//     the blocks (quantized) or elements (float) of a row: a chain rounds once a step, the tree
//     four times, a term itself at most three (K-quants' minima are terms of their own). Nothing
//     may overflow or fall below the normal numbers on the way.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace millrace {

// Rows of a weight matrix: row r starts at data + r * row_bytes and has `columns` elements of the
// type that the chosen function is for. Readable bytes: exactly rows * row_bytes (kernels never
// read past them).
//
// AWQ matrices are turned over: column i of all rows starts at data + i * row_bytes, eight rows to
// a little-endian word, whose nibbles, lowest first, are rows 0 2 4 6 1 3 5 7 of them; `rows` is a
// multiple of 8, `columns` of 128. For columns 128 g and on, the scales (F16) of all rows start at
// scales + g * scale_row_bytes, and their zeros, packed as the codes, at zeros + g * row_bytes. An
// element is (code - zero) * scale, exact in float32. Readable: rows / 2 bytes of each column.
//
// Scaled types (dtype.h) have scales besides: one per tile of scale_tile(type), those of a row of
// tiles at scales + n * scale_row_bytes, ceil(columns / tile columns) of them. An element is
// fl(code * scale). Of them only the elements' own bytes are read, so rows may have gaps.
struct WeightRows {
  const std::byte* data;
  std::size_t row_bytes;
  std::size_t rows;
  std::size_t columns;
  const std::byte* scales = nullptr;  // of the tile that row 0 lies in
  std::size_t scale_row_bytes = 0;
  std::size_t tile_row = 0;  // row 0 is this one of its tile
  ScaleType scale_type = ScaleType::none;
  const std::byte* zeros = nullptr;  // AWQ
};
inline constexpr std::size_t awq_chunk_rows = 128;  // products are fastest by multiples of it

// Activations of several tokens, quantized per 32 values. Token t has values q + t * q_stride
// (columns used, the rest up to q_stride zero), scales scale + t * block_stride and block sums sum
// + t * block_stride (padding zero). q_stride is a multiple of 512, block_stride = q_stride / 32
// (so a multiple of 16).
struct Q8Batch {
  const std::int8_t* q;
  const float* scale;       // da of each block of 32
  const std::int32_t* sum;  // sum of q over each block of 32
  std::size_t q_stride;
  std::size_t block_stride;
};
constexpr std::size_t q8_stride(std::size_t columns) noexcept {
  return (columns + 511) / 512 * 512;
}

// The same for weights in super-blocks of 256 values: one scale per 256, a sum per 16. Token t has
// values q + t * q_stride, scales scale + t * block_stride, sums sum + t * q_stride / 16. Both
// strides are multiples of q8_super_stride(), in values and in blocks; scales past the last block
// are zero.
struct Q8SuperBatch {
  const std::int8_t* q;
  const float* scale;
  const std::int16_t* sum;
  std::size_t q_stride;
  std::size_t block_stride;
};
constexpr std::size_t q8_super_stride(std::size_t columns) noexcept {
  return (columns + 1023) / 1024 * 1024;
}

// Unrounded activations: token t at x + t * stride.
struct F32Batch {
  const float* x;
  std::size_t stride;
};

// y[t * y_stride + r] = dot(row r, token t) for r < rows, t < tokens. tokens >= 1.
using MatmulQ8 = void (*)(const WeightRows& weights, const Q8Batch& x, std::size_t tokens, float* y,
                          std::size_t y_stride);
using MatmulQ8Super = void (*)(const WeightRows& weights, const Q8SuperBatch& x, std::size_t tokens,
                               float* y, std::size_t y_stride);
using MatmulF32 = void (*)(const WeightRows& weights, const F32Batch& x, std::size_t tokens,
                           float* y, std::size_t y_stride);

// Attention of one query token's heads that share one KV head. Positions [first, last] are visible,
// last >= first. Keys and values lie per position: k + j * k_stride (elements) holds head_dim
// values, v + j * v_stride value_dim values; v may point into k's rows. Any head_dim and value_dim.
// The exact definition stands in kernels/attention-inl.h.
struct AttentionArgs {
  const float* q;     // heads x head_dim, contiguous
  std::size_t heads;  // query heads of this KV head
  std::size_t head_dim;
  std::size_t value_dim;
  const void* k;  // rows of f16, f32 or q8_0 elements, as the function says
  const void* v;
  std::size_t k_stride;  // elements from one position to the next
  std::size_t v_stride;
  std::size_t first;  // absolute positions; parts of 256 start at multiples of 256
  std::size_t last;
  float scale;             // score = scale * dot(q, k)
  const float* sinks;      // one logit per head, or nullptr
  float* out;              // heads x value_dim, contiguous
  float* scratch;          // attention_scratch_floats() floats, used by this call alone
  std::size_t origin = 0;  // position of the first row of k and v, <= first
  // Rows behind the positions that are key and value at once (compressed ones): `more_count` of
  // head_dim = value_dim values, k_stride apart, all visible, in parts of 256 of their own.
  const void* more = nullptr;
  std::size_t more_count = 0;
};
inline constexpr std::size_t attention_part_positions = 256;
// Heads that go through a part together; with more heads K and V are read again for each block.
inline constexpr std::size_t attention_block_heads = 16;
constexpr std::size_t attention_scratch_floats() noexcept {
  return attention_block_heads * attention_part_positions;
}

// Gated units with both halves clamped: gate at most `limit`, up within +-limit (NaN stays NaN).
struct SwigluClamp {
  float limit;
  float slope;   // of the sigmoid
  float offset;  // added to up
};

// The causal convolution of a gated delta net over a stretch of channels, each with taps of its
// own: out = silu(the sum of weight[tap] * rows[tap], by fma from 0, taps ascending).
struct ConvArgs {
  const float* const* rows;  // `taps` pointers to `count` values; the last is the current token
  std::size_t taps;
  const float* weights;       // of tap i at weights + i * weight_stride
  std::size_t weight_stride;  // floats
  std::size_t count;          // channels
  float* out;
};

// One token through one value head of a gated delta net. With S the state before and D = decay * S:
//   found[j] = the sum of k[i] * D[i][j], by fma from 0, i ascending;  e = beta * (v - found)
//   S[i][j] = fma(k[i], e[j], D[i][j]);  out[j] = scale * the sum of q[i] * S[i][j], as above
struct DeltaArgs {
  const float* q;  // key_dim
  const float* k;
  const float* v;  // value_dim
  std::size_t key_dim, value_dim;
  float decay, beta, scale;
  float* state;  // key_dim rows of value_dim
  float* out;    // value_dim
};

// What depends on the type of the weights. An ISA's kernels come in parts, each compiled on its own
// and holding some of the types; dispatch.cpp puts them together.
struct WeightKernels {
  // Quantizes `columns` (a multiple of 32) values; writes q8_stride(columns) q's and a 32nd of that
  // scales and sums, padding zeroed. False if a value is NaN or infinite (outputs are then
  // unspecified).
  bool (*quantize_q8)(const float* x, std::size_t columns, std::int8_t* q, float* scale,
                      std::int32_t* sum);
  // The same per 256 values (columns a multiple of 256) for a Q8SuperBatch; of the padding only the
  // scales are written.
  bool (*quantize_q8_super)(const float* x, std::size_t columns, std::int8_t* q, float* scale,
                            std::int16_t* sum);

  // By DType; nullptr where the type has no such product. A quantized type has either matmul_q8 or
  // matmul_q8_super, a float type neither.
  MatmulQ8 matmul_q8[dtype_count];
  MatmulQ8Super matmul_q8_super[dtype_count];
  MatmulF32 matmul_f32[dtype_count];
  // One row decoded to float32: exact, each element the float64 definition rounded once.
  void (*decode_row[dtype_count])(const std::byte* row, std::size_t columns, float* out);
  // The same of row `row` of a scaled type, for which decode_row is nullptr.
  void (*decode_scaled[dtype_count])(const WeightRows& weights, std::size_t row, float* out);
};

struct KernelTable : WeightKernels {
  const char* name;  // "scalar", "avx2", …: CONTRACT's ISA names

  // y = fl(x * s) * w with s = 1 / sqrt(dot(x, x) / count + eps). y may be x.
  void (*rms_norm)(const float* x, const float* weight, float eps, std::size_t count, float* y);
  // Rotates `heads` heads of `head_dim` floats in place (pairs (2i, 2i+1), or (i, i + rotary/2) for
  // neox); elements past `rotary` stay. cosine/sine: rotary / 2 values (magnitude already in them).
  void (*rope_norm)(float* x, std::size_t heads, std::size_t head_dim, std::size_t rotary,
                    const float* cosine, const float* sine);
  void (*rope_neox)(float* x, std::size_t heads, std::size_t head_dim, std::size_t rotary,
                    const float* cosine, const float* sine);
  void (*attention_f16)(const AttentionArgs& args);
  void (*attention_f32)(const AttentionArgs& args);
  // Strides are multiples of 32 elements; a row of n elements is n / 32 blocks of BlockQ8_0.
  void (*attention_q8_0)(const AttentionArgs& args);
  // In place, by true division. -infinity gives 0; a NaN, a +infinity or nothing but -infinity
  // makes all results NaN.
  void (*softmax)(float* x, std::size_t count);
  // out[c] = the sum of values[t][c] weighted by the softmax over t of scores[t][c]; items >= 1
  // rows of each, taken in their order. A NaN in a channel makes its result NaN.
  void (*softmax_pool)(const float* const* scores, const float* const* values, std::size_t items,
                       std::size_t channels, float* out);
  void (*swiglu)(const float* gate, const float* up, std::size_t count,
                 float* out);  // silu(gate) * up; out may be gate
  // g / (1 + exp(-slope * g)) * (u + offset) with the clamped g and u; out may be gate.
  void (*swiglu_clamped)(const float* gate, const float* up, std::size_t count,
                         const SwigluClamp& clamp, float* out);
  void (*sigmoid)(const float* x, std::size_t count,
                  float* out);  // sigmoid_f32's bits; out may be x
  // y = fl(x * s) with s = 1 / max(sqrt(dot(x, x)), eps). y may be x.
  void (*l2_norm)(const float* x, float eps, std::size_t count, float* y);
  void (*conv_silu)(const ConvArgs& args);
  void (*delta_step)(const DeltaArgs& args);
  void (*add)(const float* x, std::size_t count, float* y);  // y += x
  void (*add_scaled)(const float* x, float factor, std::size_t count,
                     float* y);  // y = fma(factor, x, y)
  void (*to_f16)(const float* x, std::size_t count,
                 std::uint16_t* out);  // round to nearest even, overflow to infinity
  // ceil(count / 32) blocks: the codes of quantize_q8, its scale as a half. A NaN or infinity makes
  // its block NaN.
  void (*to_q8_0)(const float* x, std::size_t count, std::byte* out);
  void (*exp)(const float* x, std::size_t count,
              float* out);  // kernels/math's exp; for tests and the sampler
  bool (*all_finite)(const float* x, std::size_t count);
  // Best plain read loop of this ISA: sums the bytes as 64-bit words (bytes a multiple of 8). The
  // limit that matvecs are held to.
  std::uint64_t (*read_all)(const std::byte* data, std::size_t bytes);
};

}  // namespace millrace
