// Products of packed FP4 weights, their E8M0 scales apart, and 8-bit activations, over an ISA
// policy: the canonical dot, in groups of 16 blocks as matmul_q8-inl.h takes them. The same bits as
// those of MXFP4 blocks with the same codes and scales.
#pragma once

#include <cstring>

#include "kernels/formats/scaled-inl.h"
#include "kernels/kernel_table.h"
#include "kernels/matmul_q8-inl.h"
#include "kernels/prefetch-inl.h"

namespace millrace {
namespace {

// `blocks` blocks of a row (16, or fewer at its end) where a whole group may be read.
template <class Isa>
class Fp4Group {
 public:
  [[gnu::always_inline]] Fp4Group(const std::byte* codes, const std::byte* scales,
                                  std::size_t blocks)
      : codes_(codes) {
    if (blocks == group_blocks) {
      scales_.scale = FormatFp4::scales<Isa>(scales);
      return;
    }
    std::memset(copy_, 0, sizeof copy_);
    std::memcpy(copy_, codes, blocks * FormatFp4::block_bytes);
    std::byte padded[group_blocks] = {};
    std::memcpy(padded, scales, blocks);
    codes_ = copy_;
    scales_.scale = Isa::first_blocks(FormatFp4::scales<Isa>(padded), blocks);
  }
  Fp4Group(const Fp4Group&) = delete;
  Fp4Group& operator=(const Fp4Group&) = delete;

  const std::byte* codes() const { return codes_; }
  const GroupScales<Isa>& scales() const { return scales_; }

 private:
  const std::byte* codes_;
  GroupScales<Isa> scales_;
  std::byte copy_[group_blocks * FormatFp4::block_bytes];
};

template <class Isa, std::size_t row_count, std::size_t token_count>
void fp4_tile(const WeightRows& weights, std::size_t row, const Q8Batch& x, std::size_t token,
              float* y, std::size_t y_stride) {
  constexpr std::size_t group_bytes = group_blocks * FormatFp4::block_bytes;
  const std::size_t blocks = weights.columns / 32;
  const std::byte* const first = weights.data + row * weights.row_bytes;
  const std::byte* ahead = first + row_count * weights.row_bytes + prefetch_distance;
  GroupSums<Isa> acc[row_count][token_count];
  for (auto& row_acc : acc)
    for (auto& one : row_acc) clear(one);
  for (std::size_t g = 0; g * group_blocks < blocks; ++g) {
    const std::size_t left = blocks - g * group_blocks;
    GroupActivations<Isa> activations[token_count];
    for (std::size_t t = 0; t < token_count; ++t)
      activations[t] = load_activations<Isa, FormatFp4>(x, token + t, g);
    for (std::size_t r = 0; r < row_count; ++r) {
      if (token == 0) ahead = prefetch_lines<Isa, group_bytes>(ahead);
      const Fp4Group<Isa> group(first + r * weights.row_bytes + g * group_bytes,
                                scale_row(weights, row + r, 1) + g * group_blocks,
                                left < group_blocks ? left : group_blocks);
      if constexpr (token_count == 1) {
        dot_group<Isa, FormatFp4>(group.codes(), activations[0],
                                  join_scales<Isa, FormatFp4>(group.scales(), activations[0]),
                                  acc[r][0]);
      } else {
        GroupWeights<Isa> w;
        for (std::size_t quad = 0; quad < 4; ++quad)
          FormatFp4::codes<Isa>(group.codes() + 4 * quad * FormatFp4::block_bytes, w.lo[quad],
                                w.hi[quad]);
        w.scales = group.scales();
        for (std::size_t t = 0; t < token_count; ++t)
          dot_unpacked<Isa, FormatFp4>(w, activations[t], acc[r][t]);
      }
    }
  }
  for (std::size_t r = 0; r < row_count; ++r)
    for (std::size_t t = 0; t < token_count; ++t)
      y[(token + t) * y_stride + row + r] = total<Isa, FormatFp4>(acc[r][t]);
}

template <class Isa, std::size_t row_count>
void fp4_rows(const WeightRows& weights, std::size_t row, const Q8Batch& x, std::size_t tokens,
              float* y, std::size_t y_stride) {
  constexpr std::size_t tile = Isa::tile_tokens;
  std::size_t t = 0;
  for (; t + tile <= tokens; t += tile)
    fp4_tile<Isa, row_count, tile>(weights, row, x, t, y, y_stride);
  for (; t < tokens; ++t) fp4_tile<Isa, row_count, 1>(weights, row, x, t, y, y_stride);
}

template <class Isa>
void matmul_fp4(const WeightRows& weights, const Q8Batch& x, std::size_t tokens, float* y,
                std::size_t y_stride) {
  std::size_t row = 0;
  if (tokens == 1) {
    for (; row + Isa::matvec_rows <= weights.rows; row += Isa::matvec_rows)
      fp4_tile<Isa, Isa::matvec_rows, 1>(weights, row, x, 0, y, y_stride);
  } else {
    for (; row + Isa::tile_rows <= weights.rows; row += Isa::tile_rows)
      fp4_rows<Isa, Isa::tile_rows>(weights, row, x, tokens, y, y_stride);
  }
  for (; row < weights.rows; ++row) fp4_rows<Isa, 1>(weights, row, x, tokens, y, y_stride);
}

}  // namespace
}  // namespace millrace
