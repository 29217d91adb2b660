// Products of quantized weights and 8-bit activations by tiles of AMX, over an ISA policy, the tile
// instructions and a block format of 32 values. A tile product is one block of 16 tokens by 16
// rows: exact 32-bit sums, from which the canonical steps follow, one vector of rows per token.
//
// Tokens are the rows of the left tile, read where they lie. The right tile has the weights of a
// block: four values of each row side by side, then the next four. It is packed once for as many
// tokens as keep their accumulators in the second-level cache.
//
// `Tiles` stands for the instructions, so that a test can put their definition in their place:
//   configure(tokens)                 tile 0: tokens x 16 sums, tile 1: tokens x 32 bytes, tile 2:
//                                     8 x 64 bytes
//   release()
//   zero_sums()                       tile 0 = 0
//   load_tokens(p, stride), load_weights(p)
//   multiply()                        tile 0 += tile 1 * tile 2, of signed bytes
//   store_sums(p)                     16 sums for each token
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/matmul_q8-inl.h"

namespace millrace {
namespace {

inline constexpr std::size_t tile_side = 16;  // tokens and rows of a tile

template <class Isa, class Tiles, class Format>
class TileMatmul {
  using Vector = typename Isa::F32x16;
  static constexpr std::size_t tokens_at_once = 64;

  // One group of 16 blocks of 16 rows; rows past the end are zero.
  struct Panel {
    alignas(64) std::byte codes[group_blocks][8][tile_side][4];  // [block][value / 4][row]
    alignas(64) float scale[group_blocks][tile_side];
    alignas(64) float minimum[group_blocks][tile_side];
  };
  // The 16 canonical accumulators of each token and row.
  struct Sums {
    alignas(64) float products[tokens_at_once][group_blocks][tile_side];
    alignas(64) float minima[has_minima<Isa, Format> ? tokens_at_once : 1][group_blocks][tile_side];
  };

  const WeightRows& weights_;
  const Q8Batch& x_;
  const std::size_t blocks_;
  std::size_t configured_ = 0;  // tokens of a tile
  Panel panel_;
  Sums sums_;

 public:
  TileMatmul(const WeightRows& weights, const Q8Batch& x)
      : weights_(weights), x_(x), blocks_(weights.columns / 32) {}

  void run(std::size_t tokens, float* y, std::size_t y_stride) {
    for (std::size_t row = 0; row < weights_.rows; row += tile_side) {
      const std::size_t rows_left = weights_.rows - row;
      const std::size_t rows = rows_left < tile_side ? rows_left : tile_side;
      for (std::size_t token = 0; token < tokens; token += tokens_at_once) {
        const std::size_t left = tokens - token;
        const std::size_t count = left < tokens_at_once ? left : tokens_at_once;
        std::memset(&sums_, 0, sizeof sums_);
        for (std::size_t group = 0; group * group_blocks < blocks_; ++group) {
          pack(row, rows, group);
          for (std::size_t t = 0; t < count; t += tile_side)
            multiply_group(group, token, t, count - t < tile_side ? count - t : tile_side);
        }
        for (std::size_t t = 0; t < count; ++t)
          Isa::store_first(y + (token + t) * y_stride + row, total(t), rows);
      }
    }
    Tiles::release();
  }

 private:
  std::size_t blocks_of(std::size_t group) const {
    const std::size_t left = blocks_ - group * group_blocks;
    return left < group_blocks ? left : group_blocks;
  }

  void pack(std::size_t row, std::size_t rows, std::size_t group) {
    constexpr std::size_t group_bytes = group_blocks * Format::block_bytes;
    if (rows < tile_side) std::memset(&panel_, 0, sizeof panel_);
    for (std::size_t r = 0; r < rows; ++r) {
      if (blocks_of(group) == group_blocks) {
        pack_row(r, weights_.data + (row + r) * weights_.row_bytes + group * group_bytes);
      } else {
        const TailGroup<Format> tail(weights_, row + r, group, blocks_of(group));
        pack_row(r, tail.data());
      }
    }
  }

  void pack_row(std::size_t r, const std::byte* group) {
    for (std::size_t quad = 0; quad < 4; ++quad) {
      typename Isa::B64 lo, hi;
      Format::template codes<Isa>(group + 4 * quad * Format::block_bytes, lo, hi);
      std::byte bytes[2][4][16];  // halves of four blocks
      static_assert(sizeof lo == sizeof bytes[0]);
      std::memcpy(bytes[0], &lo, sizeof lo);
      std::memcpy(bytes[1], &hi, sizeof hi);
      for (std::size_t b = 0; b < 4; ++b)
        for (std::size_t k = 0; k < 8; ++k)
          std::memcpy(panel_.codes[4 * quad + b][k][r], bytes[k / 4][b] + k % 4 * 4, 4);
    }
    const auto scales = load_scales<Isa, Format>(group);
    put_column(panel_.scale, r, scales.scale);
    if constexpr (has_minima<Isa, Format>) put_column(panel_.minimum, r, scales.minimum);
  }

  static void put_column(float (&to)[group_blocks][tile_side], std::size_t r, Vector values) {
    alignas(64) float lanes[group_blocks];
    Isa::store(lanes, Isa::group_order(values));
    for (std::size_t b = 0; b < group_blocks; ++b) to[b][r] = lanes[b];
  }

  // Tokens `first + t` .. of the batch, t .. of the sums.
  void multiply_group(std::size_t group, std::size_t first, std::size_t t, std::size_t count) {
    if (configured_ != count) Tiles::configure(count);
    configured_ = count;
    const std::int8_t* const q = x_.q + (first + t) * x_.q_stride + group * group_values;
    const std::size_t blocks = blocks_of(group);
    for (std::size_t b = 0; b < blocks; ++b) {
      alignas(64) std::int32_t products[tile_side][tile_side];
      Tiles::zero_sums();
      Tiles::load_tokens(q + 32 * b, x_.q_stride);
      Tiles::load_weights(panel_.codes[b]);
      Tiles::multiply();
      Tiles::store_sums(products);
      const std::size_t at = (first + t) * x_.block_stride + group * group_blocks + b;
      for (std::size_t i = 0; i < count; ++i)
        step(products[i], b, t + i, x_.scale[at + i * x_.block_stride],
             x_.sum[at + i * x_.block_stride]);
    }
  }

  // The canonical step of one block, for 16 rows and one token.
  void step(const std::int32_t (&products)[tile_side], std::size_t b, std::size_t t, float scale,
            std::int32_t sum) {
    constexpr std::int32_t offset = Format::template offset<Isa>;
    auto product = Isa::load_i(products);
    if constexpr (offset != 0) product = Isa::sub_i(product, Isa::set1_i(offset * sum));
    const auto factor = Isa::set1(scale);
    add_product(sums_.products[t][b], Isa::to_f32(product),
                Isa::mul(Isa::load(panel_.scale[b]), factor));
    if constexpr (has_minima<Isa, Format>)
      add_product(sums_.minima[t][b], Isa::set1(static_cast<float>(sum)),
                  Isa::mul(Isa::load(panel_.minimum[b]), factor));
  }

  static void add_product(float (&to)[tile_side], const Vector& a, const Vector& b) {
    Isa::store(to, Isa::fma(a, b, Isa::load(to)));
  }

  // The tree over the 16 accumulators of a token, for 16 rows.
  Vector total(std::size_t t) const {
    Vector sum[group_blocks];
    for (std::size_t i = 0; i < group_blocks; ++i) {
      sum[i] = Isa::load(sums_.products[t][i]);
      if constexpr (has_minima<Isa, Format>)
        sum[i] = Isa::add(sum[i], Isa::load(sums_.minima[t][i]));
    }
    for (std::size_t half = group_blocks / 2; half > 0; half /= 2)
      for (std::size_t i = 0; i < half; ++i) sum[i] = Isa::add(sum[i], sum[i + half]);
    return sum[0];
  }
};

// Any number of tokens; worth it from half a tile of them on.
template <class Isa, class Tiles, class Format>
void matmul_tiles(const WeightRows& weights, const Q8Batch& x, std::size_t tokens, float* y,
                  std::size_t y_stride) {
  TileMatmul<Isa, Tiles, Format>(weights, x).run(tokens, y, y_stride);
}

}  // namespace
}  // namespace millrace
