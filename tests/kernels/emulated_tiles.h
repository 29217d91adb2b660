// The tile instructions in plain code, as Intel's manual defines them (Software Developer's Manual,
// volume 2: LDTILECFG, TILELOADD, TDPBSSD, TILESTORED, palette 1), and the tile products over them
// and an ISA policy. In an unnamed namespace and without library code, as it is compiled with an
// ISA's flags too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/formats/mxfp4-inl.h"
#include "kernels/formats/nibble_blocks-inl.h"
#include "kernels/formats/q8_0-inl.h"
#include "kernels/matmul_tiles-inl.h"
#include "runtime/base/check.h"

namespace millrace {
namespace {

struct Tile {
  std::size_t rows = 0;
  std::size_t row_bytes = 0;
  std::uint8_t at[16][64] = {};
};

// Registers before LDTILECFG have no rows: using them is an error, as are unequal dimensions.
struct EmulatedTiles {
  static inline Tile tile[3];

  static void configure(std::size_t tokens) {
    MILLRACE_CHECK(tokens >= 1 && tokens <= 16);
    release();
    tile[0].rows = tile[1].rows = tokens;
    tile[2].rows = 8;
    tile[0].row_bytes = tile[2].row_bytes = 64;
    tile[1].row_bytes = 32;
  }
  static void release() {
    for (Tile& each : tile) each = {};
  }
  static void zero_sums() { std::memset(tile[0].at, 0, sizeof tile[0].at); }
  static void load(Tile& to, const void* p, std::size_t stride) {
    MILLRACE_CHECK(to.rows > 0);
    std::memset(to.at, 0, sizeof to.at);  // rows and bytes past the configured ones become zero
    for (std::size_t r = 0; r < to.rows; ++r)
      std::memcpy(to.at[r], static_cast<const std::byte*>(p) + r * stride, to.row_bytes);
  }
  static void load_tokens(const void* p, std::size_t stride) { load(tile[1], p, stride); }
  static void load_weights(const void* p) { load(tile[2], p, 64); }
  static void multiply() {
    Tile& sums = tile[0];
    const Tile& a = tile[1];
    const Tile& b = tile[2];
    MILLRACE_CHECK(sums.rows == a.rows && a.row_bytes == 4 * b.rows &&
                   sums.row_bytes == b.row_bytes);
    for (std::size_t m = 0; m < sums.rows; ++m) {
      for (std::size_t k = 0; k < a.row_bytes / 4; ++k) {
        for (std::size_t n = 0; n < sums.row_bytes / 4; ++n) {
          std::uint32_t sum;
          std::memcpy(&sum, sums.at[m] + 4 * n, 4);
          for (std::size_t i = 0; i < 4; ++i)
            sum += static_cast<std::uint32_t>(static_cast<std::int8_t>(a.at[m][4 * k + i]) *
                                              static_cast<std::int8_t>(b.at[k][4 * n + i]));
          std::memcpy(sums.at[m] + 4 * n, &sum, 4);
        }
      }
    }
  }
  static void store_sums(void* p) {
    MILLRACE_CHECK(tile[0].rows > 0);
    for (std::size_t r = 0; r < tile[0].rows; ++r)
      std::memcpy(static_cast<std::byte*>(p) + 64 * r, tile[0].at[r], 64);
  }
};

// `type` is one of those that have tile products.
template <class Isa>
MatmulQ8 emulated_product(DType type) {
  switch (type) {
    case DType::q8_0:
      return &matmul_tiles<Isa, EmulatedTiles, FormatQ8_0>;
    case DType::q4_0:
      return &matmul_tiles<Isa, EmulatedTiles, FormatQ4_0>;
    case DType::mxfp4:
      return &matmul_tiles<Isa, EmulatedTiles, FormatMxfp4>;
    case DType::q4_1:
      return &matmul_tiles<Isa, EmulatedTiles, FormatQ4_1>;
    case DType::q5_0:
      return &matmul_tiles<Isa, EmulatedTiles, FormatQ5_0>;
    case DType::q5_1:
      return &matmul_tiles<Isa, EmulatedTiles, FormatQ5_1>;
    default:
      return &matmul_tiles<Isa, EmulatedTiles, FormatIQ4_NL>;
  }
}

}  // namespace
}  // namespace millrace
