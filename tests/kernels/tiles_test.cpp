// The tile products over an emulation of the tile instructions, as Intel's manual defines them
// (Software Developer's Manual, volume 2: LDTILECFG, TILELOADD, TDPBSSD, TILESTORED, palette 1).
#include <array>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/formats/mxfp4-inl.h"
#include "kernels/formats/nibble_blocks-inl.h"
#include "kernels/formats/q8_0-inl.h"
#include "kernels/isa/scalar.h"
#include "kernels/matmul_tiles-inl.h"
#include "tests/kernels/weight_cases.h"

namespace millrace {
namespace {

using namespace testing;

struct Tile {
  std::size_t rows = 0;
  std::size_t row_bytes = 0;
  std::array<std::array<std::uint8_t, 64>, 16> at{};
};

// Registers before LDTILECFG have no rows: using them is an error, as are unequal dimensions.
struct EmulatedTiles {
  static inline std::array<Tile, 3> tile;

  static void configure(std::size_t tokens) {
    MILLRACE_CHECK(tokens >= 1 && tokens <= 16);
    tile = {};
    tile[0].rows = tile[1].rows = tokens;
    tile[2].rows = 8;
    tile[0].row_bytes = tile[2].row_bytes = 64;
    tile[1].row_bytes = 32;
  }
  static void release() { tile = {}; }
  static void zero_sums() { tile[0].at = {}; }
  static void load(Tile& to, const void* p, std::size_t stride) {
    MILLRACE_CHECK(to.rows > 0);
    to.at = {};  // rows and bytes past the configured ones become zero
    for (std::size_t r = 0; r < to.rows; ++r)
      std::memcpy(to.at[r].data(), static_cast<const std::byte*>(p) + r * stride, to.row_bytes);
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
          std::memcpy(&sum, sums.at[m].data() + 4 * n, 4);
          for (std::size_t i = 0; i < 4; ++i)
            sum += static_cast<std::uint32_t>(static_cast<std::int8_t>(a.at[m][4 * k + i]) *
                                              static_cast<std::int8_t>(b.at[k][4 * n + i]));
          std::memcpy(sums.at[m].data() + 4 * n, &sum, 4);
        }
      }
    }
  }
  static void store_sums(void* p) {
    MILLRACE_CHECK(tile[0].rows > 0);
    for (std::size_t r = 0; r < tile[0].rows; ++r)
      std::memcpy(static_cast<std::byte*>(p) + 64 * r, tile[0].at[r].data(), 64);
  }
};

MatmulQ8 tile_product(DType type) {
  switch (type) {
    case DType::q8_0:
      return &matmul_tiles<Scalar, EmulatedTiles, FormatQ8_0>;
    case DType::q4_0:
      return &matmul_tiles<Scalar, EmulatedTiles, FormatQ4_0>;
    case DType::mxfp4:
      return &matmul_tiles<Scalar, EmulatedTiles, FormatMxfp4>;
    case DType::q4_1:
      return &matmul_tiles<Scalar, EmulatedTiles, FormatQ4_1>;
    case DType::q5_0:
      return &matmul_tiles<Scalar, EmulatedTiles, FormatQ5_0>;
    case DType::q5_1:
      return &matmul_tiles<Scalar, EmulatedTiles, FormatQ5_1>;
    default:
      return &matmul_tiles<Scalar, EmulatedTiles, FormatIQ4_NL>;
  }
}

void check_tiles(Weights& w, const Activations& x) {
  const std::size_t stride = w.rows + 3;
  GuardedArray<float> y(std::vector<float>((x.tokens - 1) * stride + w.rows, untouched));
  tile_product(w.type)(w.view(), x.view(), x.tokens, y.data(), stride);
  INFO(dtype_info(w.type).name << " " << w.rows << " x " << w.columns << ", tokens " << x.tokens);
  std::size_t different = 0;
  for (std::size_t i = 0; i < y.span().size(); ++i) {
    const std::size_t row = i % stride;
    const std::size_t token = i / stride;
    const float expected = row < w.rows ? reference::dot_q8(w.type, w.row(row), w.columns,
                                                            x.q.data() + token * x.stride,
                                                            x.scale.data() + token * x.blocks)
                                        : untouched;
    const bool both_nan = expected != expected && y.data()[i] != y.data()[i];
    if (!both_nan && !same_bits(y.data()[i], expected)) ++different;
  }
  CHECK(different == 0);
}

}  // namespace

TEST_CASE("tiles: products by tiles give the canonical bits for all sizes and token counts") {
  std::uint64_t seed = 1;
  for (const DType type : block_types) {
    for (const std::size_t blocks : {1, 3, 4, 15, 16, 17, 40}) {
      for (const std::size_t rows : {1, 2, 15, 16, 17, 33}) {
        Weights w(type, rows, 32 * blocks, Scales::ordinary, ++seed);
        for (const std::size_t tokens : {1, 2, 15, 16, 17, 31, 64, 65, 83}) {
          if (tokens > 17 && blocks % 4 != 0) continue;  // keeps the run short
          check_tiles(
              w, Activations(type, Random(++seed).floats(tokens * w.columns), tokens, w.columns));
        }
      }
    }
  }
}

TEST_CASE("tiles: odd scales, full ranges and zero activations give the canonical bits") {
  std::uint64_t seed = 100;
  for (const DType type : block_types) {
    for (const Scales scales : {Scales::denormal, Scales::extreme}) {
      Weights w(type, 18, 32 * 21, scales, ++seed);
      check_tiles(w, Activations(type, Random(++seed).floats(18 * w.columns), 18, w.columns));
    }
    for (const unsigned code : {0x80u, 0x7fu, 0xffu, 0x00u, 0x77u}) {
      Weights w(type, 17, 32 * 17, Scales::ordinary, 7);
      const DTypeInfo& info = dtype_info(type);
      for (std::size_t i = 0; i < w.rows * w.row_bytes; ++i)
        if (!is_scale_byte(type, i % info.block_bytes))
          w.bytes.data()[i] = static_cast<std::byte>(code);
      for (const float value : {2.0f, -2.0f, 0.0f})
        check_tiles(w, Activations(type, std::vector<float>(19 * w.columns, value), 19, w.columns));
    }
  }
}

}  // namespace millrace
