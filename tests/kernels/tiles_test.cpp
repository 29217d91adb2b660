// The tile products over emulated tile instructions: with the scalar policy, and with AMX's own
// where the CPU has AVX-512-VNNI.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/isa/scalar.h"
#include "tests/kernels/emulated_tiles.h"
#include "tests/kernels/weight_cases.h"
#if defined(__x86_64__)
#include "tests/kernels/tiles_amx.h"
#endif

namespace millrace {
namespace {

using namespace testing;

// The policies that this CPU can run.
std::vector<MatmulQ8> tile_products(DType type) {
  std::vector<MatmulQ8> products = {emulated_product<Scalar>(type)};
#if defined(__x86_64__)
  if (choose_kernels("avx512vnni").has_value())
    products.push_back(amx_product_with_emulated_tiles(type));
#endif
  return products;
}

void check_tiles(MatmulQ8 product, Weights& w, const Activations& x) {
  const std::size_t stride = w.rows + 3;
  GuardedArray<float> y(std::vector<float>((x.tokens - 1) * stride + w.rows, untouched));
  product(w.view(), x.view(), x.tokens, y.data(), stride);
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

void check_tiles(Weights& w, const Activations& x) {
  for (const MatmulQ8 product : tile_products(w.type)) check_tiles(product, w, x);
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
