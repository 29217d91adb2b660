// Products of weights and many tokens, and attention of many: a table of functions per
// ISA beside KernelTable, with its rules. The same bits as matmul_q8, matmul_q8_super,
// matmul_f32 and attention.
#pragma once

#include "kernels/kernel_table.h"

namespace millrace {

// Weights are unpacked once into panels in `scratch` (panel_scratch_bytes(columns) bytes at a
// multiple of 64, used by this call alone), which all tokens pass over. Only rows that fill whole
// tiles are computed, the first ones: returns how many; matmul_q8 is for the others. tokens >= 1.
using PanelQ8 = std::size_t (*)(const WeightRows& weights, const Q8Batch& x, std::size_t tokens,
                                float* y, std::size_t y_stride, std::byte* scratch);
using PanelQ8Super = std::size_t (*)(const WeightRows& weights, const Q8SuperBatch& x,
                                     std::size_t tokens, float* y, std::size_t y_stride,
                                     std::byte* scratch);
// The same of float types, which meet unrounded activations; matmul_f32 is for the other rows.
using PanelF32 = std::size_t (*)(const WeightRows& weights, const F32Batch& x, std::size_t tokens,
                                 float* y, std::size_t y_stride, std::byte* scratch);

// Neighbouring tokens of one sequence in attention: AttentionArgs are the first one's, and each
// next one sees a position more, of the last `window` of them (0: all).
// Or one token each of several sequences that begin alike: `own` is where each has its rows, and
// the first one's rows of positions below `shared` are read for all of them.
struct AttentionOwn {
  const void* k;  // as in AttentionArgs; so is the origin, which is 0
  const void* v;
  std::size_t last;
};
struct AttentionRun {
  std::size_t tokens;      // 1..attention_tokens_max
  std::size_t q_stride;    // floats from one token to the next
  std::size_t out_stride;  // the same
  std::size_t window;
  const AttentionOwn* own = nullptr;  // of each token; then `first` and `window` are 0
  std::size_t shared = 0;             // whole parts, which all tokens see
};
inline constexpr std::size_t attention_tokens_max = 16;
constexpr std::size_t attention_run_floats(std::size_t head_dim, std::size_t value_dim) noexcept {
  return attention_tokens_max * attention_scratch_floats() +
         attention_part_positions * (head_dim + (value_dim + 31) / 32 * 32);
}
// head_dim is a multiple of 16; scratch: attention_run_floats() floats; without `more`.
using AttentionTokensKernel = void (*)(const AttentionArgs& args, const AttentionRun& run);

struct PanelKernels {
  // At least so many tokens of a type make up for the unpacking (measured: kernels/README.md); of
  // f32 the second.
  std::size_t tokens_min[dtype_count];
  std::size_t float_tokens_min;
  PanelQ8 q8[dtype_count];  // nullptr where there is none
  PanelQ8Super q8_super[dtype_count];
  PanelF32 f32[dtype_count];
  AttentionTokensKernel attention_f16;
  AttentionTokensKernel attention_f32;
  AttentionTokensKernel attention_q8_0;
};

// Those that belong to a table; nullptr if this build has none for its ISA.
const PanelKernels* find_panel_kernels(const KernelTable& kernels) noexcept;

// A multiple of every ISA's tile: ranges of rows that are multiples of it leave nothing over.
inline constexpr std::size_t panel_tile_rows = 32;

// Room for the tokens that a panel meets before the next one is unpacked: about 60 to 96, of floats
// 24 to 36.
constexpr std::size_t panel_token_bytes(std::size_t columns) noexcept {
  constexpr std::size_t enough = 512 * 1024;
  const std::size_t padded = (columns + 511) / 512 * 512;
  const std::size_t all = padded * 144;
  const std::size_t least = padded * 96;
  return all <= enough ? all : least >= enough ? least : enough;
}
constexpr std::size_t panel_scratch_bytes(std::size_t columns) noexcept {
  return (columns + 511) / 512 * 512 * 64 + panel_token_bytes(columns);
}

}  // namespace millrace
