// Types whose scales lie apart from their codes: block FP8 and packed FP4.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "kernels/dispatch.h"
#include "kernels/reference_scaled.h"
#include "tests/kernels/panel_cases.h"
#include "tests/kernels/weight_cases.h"

namespace millrace {
namespace {

using namespace testing;

struct Kind {
  DType type;
  ScaleType scales;
};
constexpr Kind kinds[] = {{DType::f8_e4m3, ScaleType::f32},
                          {DType::f8_e4m3, ScaleType::bf16},
                          {DType::f8_e4m3, ScaleType::e8m0},
                          {DType::fp4, ScaleType::e8m0}};

// Random codes and scales, both ending where memory ends; the view starts at row `tile_row` of its
// first row of tiles. `step`: every how many rows of memory belong to the matrix.
struct ScaledWeights {
  Kind kind;
  std::size_t rows, columns, tile_row, step;
  std::size_t row_bytes, scale_row_bytes;
  GuardedArray<std::byte> codes, scales;

  ScaledWeights(Kind kind_, std::size_t rows_, std::size_t columns_, Scales of, std::uint64_t seed,
                std::size_t tile_row_ = 0, std::size_t step_ = 1)
      : kind(kind_),
        rows(rows_),
        columns(columns_),
        tile_row(tile_row_),
        step(step_),
        row_bytes(dtype_row_bytes(kind_.type, columns_)),
        scale_row_bytes((columns_ + scale_tile(kind_.type).columns - 1) /
                        scale_tile(kind_.type).columns * scale_bytes(kind_.scales)),
        codes(((rows_ - 1) * step_ + 1) * row_bytes),
        scales(scale_rows() * scale_row_bytes) {
    Random random(seed);
    for (std::size_t i = 0; i < codes.span().size(); ++i) {
      std::byte& code = codes.data()[i];
      code = static_cast<std::byte>(random.bits() >> 20);
      const bool nan = (code & std::byte{0x7f}) == std::byte{0x7f};
      if (kind.type == DType::f8_e4m3 && nan && of != Scales::extreme) code = std::byte{0x11};
    }
    const std::size_t unit = scale_bytes(kind.scales);
    for (std::size_t at = 0; at < scales.span().size(); at += unit) {
      const float value = any_float(random, of);
      const std::uint8_t exponent = mxfp4_exponent(random, of);
      const auto half = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
      if (kind.scales == ScaleType::f32) std::memcpy(scales.data() + at, &value, 4);
      else if (kind.scales == ScaleType::bf16) std::memcpy(scales.data() + at, &half, 2);
      else scales.data()[at] = static_cast<std::byte>(exponent);
    }
  }
  std::size_t scale_rows() const {
    const std::size_t tile = scale_tile(kind.type).rows;
    return tile == 1 ? (rows - 1) * step + 1 : (tile_row + rows + tile - 1) / tile;
  }
  WeightRows view() {
    return {codes.data(),  step * row_bytes,
            rows,          columns,
            scales.data(), kind.type == DType::fp4 ? step * scale_row_bytes : scale_row_bytes,
            tile_row,      kind.scales};
  }
  std::string describe(const KernelTable& table) const {
    return std::string(table.name) + " " + dtype_info(kind.type).name + " scales of " +
           std::to_string(scale_bytes(kind.scales)) + " bytes, " + std::to_string(rows) + " x " +
           std::to_string(columns) + " from row " + std::to_string(tile_row);
  }
};

void check_f32(ScaledWeights& w, const std::vector<float>& x) {
  const std::size_t tokens = x.size() / w.columns;
  const GuardedArray<float> guarded(x);
  std::vector<float> expected;
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t r = 0; r < w.rows; ++r)
      expected.push_back(
          reference::dot_scaled_f32(w.kind.type, w.view(), r, x.data() + t * w.columns));
  for (const KernelTable* table : supported_kernels()) {
    std::vector<float> y(expected.size());
    table->matmul_f32[id_of(w.kind.type)](w.view(), {guarded.span().data(), w.columns}, tokens,
                                          y.data(), w.rows);
    INFO(w.describe(*table) << ", tokens " << tokens);
    CHECK(first_difference(y, expected) == -1);
    const PanelKernels* const panels = find_panel_kernels(*table);
    if (panels == nullptr || panels->f32[id_of(w.kind.type)] == nullptr) continue;
    const F32Batch batch{guarded.span().data(), w.columns};
    CHECK(
        first_difference(by_panels(panels->f32[id_of(w.kind.type)],
                                   table->matmul_f32[id_of(w.kind.type)], w.view(), batch, tokens),
                         expected) == -1);
  }
}

void check_f32(ScaledWeights& w, std::size_t tokens, std::uint64_t seed) {
  check_f32(w, Random(seed).floats(tokens * w.columns));
}

void check_q8(ScaledWeights& w, const std::vector<float>& values) {
  const std::size_t tokens = values.size() / w.columns;
  const Activations x(w.kind.type, values, tokens, w.columns);
  std::vector<float> expected;
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t r = 0; r < w.rows; ++r)
      expected.push_back(reference::dot_scaled_q8(w.view(), r, x.q.data() + t * x.stride,
                                                  x.scale.data() + t * x.blocks));
  for (const KernelTable* table : supported_kernels()) {
    std::vector<float> y(expected.size());
    table->matmul_q8[id_of(w.kind.type)](w.view(), x.view(), tokens, y.data(), w.rows);
    INFO(w.describe(*table) << ", tokens " << tokens);
    CHECK(first_difference(y, expected) == -1);
    if (const PanelKernels* const panels = find_panel_kernels(*table))
      CHECK(first_difference(
                by_panels(panels->q8[id_of(w.kind.type)], table->matmul_q8[id_of(w.kind.type)],
                          w.view(), x.view(), tokens),
                expected) == -1);
  }
}

void check_q8(ScaledWeights& w, std::size_t tokens, std::uint64_t seed) {
  check_q8(w, Random(seed).floats(tokens * w.columns));
}

}  // namespace

TEST_CASE("scaled types: each element is the float64 definition rounded once, whatever the scale") {
  std::uint64_t seed = 1;
  for (const Kind kind : kinds) {
    for (const Scales of : {Scales::ordinary, Scales::denormal, Scales::extreme}) {
      for (const std::size_t columns : {32, 64, 128, 160, 416}) {
        ScaledWeights w(kind, 5, columns, of, ++seed, kind.type == DType::fp4 ? 0 : 126);
        for (std::size_t r = 0; r < w.rows; ++r) {
          std::vector<double> exact(columns);
          reference::decode_scaled(kind.type, w.view(), r, exact.data());
          const std::vector<float> expected(exact.begin(), exact.end());
          for (const KernelTable* table : supported_kernels()) {
            GuardedArray<float> out(columns);
            table->decode_scaled[id_of(kind.type)](w.view(), r, out.data());
            INFO(w.describe(*table) << ", row " << r);
            CHECK(first_difference({out.span().begin(), out.span().end()}, expected) == -1);
          }
        }
      }
    }
  }
}

TEST_CASE("scaled types: every code decodes exactly on every ISA") {
  std::vector<std::byte> codes(256);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i);
  for (const Kind kind : kinds) {
    const std::size_t columns = kind.type == DType::fp4 ? 512 : 256;
    std::vector<std::byte> scales(16 * scale_bytes(kind.scales));
    for (std::size_t i = 0; i < 16; ++i) {
      const float one = 1;
      if (kind.scales == ScaleType::f32) std::memcpy(&scales[4 * i], &one, 4);
      if (kind.scales == ScaleType::bf16)
        scales[2 * i] = std::byte{0x80}, scales[2 * i + 1] = std::byte{0x3f};
      if (kind.scales == ScaleType::e8m0) scales[i] = std::byte{127};
    }
    const WeightRows view{codes.data(),  256,           1, columns,
                          scales.data(), scales.size(), 0, kind.scales};
    std::vector<double> exact(columns);
    reference::decode_scaled(kind.type, view, 0, exact.data());
    if (kind.type == DType::fp4) {  // byte 0x53: 1.5 in the even column, then 3
      CHECK(exact[2 * 0x53] == 1.5);
      CHECK(exact[2 * 0x53 + 1] == 3);
    } else {  // the largest, the smallest, minus one
      CHECK(exact[0x7e] == 448);
      CHECK(exact[0x01] == 0x1p-9);
      CHECK(exact[0xb8] == -1);
      CHECK(std::isnan(exact[0xff]));
    }
    const std::vector<float> expected(exact.begin(), exact.end());
    for (const KernelTable* table : supported_kernels()) {
      std::vector<float> out(columns);
      table->decode_scaled[id_of(kind.type)](view, 0, out.data());
      INFO(table->name << " " << dtype_info(kind.type).name);
      CHECK(first_difference(out, expected) == -1);
    }
  }
}

TEST_CASE("scaled types: float products give the canonical bits for all sizes and tails") {
  std::uint64_t seed = 100;
  for (const Kind kind : kinds) {
    const bool fp4 = kind.type == DType::fp4;
    for (std::size_t columns = 1; columns <= 300; columns += columns < 40 ? 1 : 37) {
      const std::size_t whole = fp4 ? (columns + 31) / 32 * 32 : columns;
      ScaledWeights w(kind, 1 + columns % 6, whole, Scales::ordinary, ++seed,
                      fp4 ? 0 : (columns * 31) % 128);
      for (const std::size_t tokens : {1, 2, 5}) check_f32(w, tokens, ++seed);
    }
    ScaledWeights tall(kind, 261, fp4 ? 96 : 130, Scales::ordinary, ++seed, fp4 ? 0 : 120);
    check_f32(tall, 1, ++seed);
    for (const Scales of : {Scales::denormal, Scales::extreme}) {
      ScaledWeights odd(kind, 7, fp4 ? 96 : 141, of, ++seed);
      for (const std::size_t tokens : {1, 6}) check_f32(odd, tokens, ++seed);
    }
  }
}

TEST_CASE("scaled types: rows that fill panels give the canonical bits") {
  std::uint64_t seed = 150;
  for (const Kind kind : kinds) {
    const bool fp4 = kind.type == DType::fp4;
    for (const Scales of : {Scales::ordinary, Scales::denormal, Scales::extreme}) {
      for (const std::size_t columns : {32, 128, 160, 416}) {
        ScaledWeights w(kind, 40, fp4 ? columns : columns + 9, of, ++seed, fp4 ? 0 : 110);
        for (const std::size_t tokens : {1, 7, 19}) {
          check_f32(w, tokens, ++seed);
          if (fp4) check_q8(w, tokens, ++seed);
        }
      }
    }
  }
}

TEST_CASE("scaled types: products with rounded activations give the canonical bits") {
  std::uint64_t seed = 200;
  const Kind kind{DType::fp4, ScaleType::e8m0};
  for (const std::size_t blocks : {1, 2, 3, 4, 5, 7, 15, 16, 17, 31, 32, 33, 90}) {
    for (const std::size_t rows : {1, 2, 3, 4, 5, 9}) {
      ScaledWeights w(kind, rows, 32 * blocks, Scales::ordinary, ++seed);
      for (const std::size_t tokens : {1, 2, 3, 4, 7, 9}) check_q8(w, tokens, ++seed);
    }
    for (const Scales of : {Scales::denormal, Scales::extreme}) {
      ScaledWeights odd(kind, 5, 32 * blocks, of, ++seed);
      for (const std::size_t tokens : {1, 5}) check_q8(odd, tokens, ++seed);
    }
  }
}

TEST_CASE("scaled types: activations that are zero, huge or denormal give the canonical bits") {
  std::uint64_t seed = 250;
  for (const Kind kind : kinds) {
    for (const Scales of : {Scales::ordinary, Scales::denormal, Scales::extreme}) {
      ScaledWeights w(kind, 34, 160, of, ++seed, kind.type == DType::fp4 ? 0 : 110);
      for (const double magnitude : {0.0, 1e30, 1e-28, 1e-42}) {
        for (const std::size_t tokens : {1, 3, 9}) {
          const auto x = Random(++seed).floats(tokens * w.columns, -magnitude, magnitude);
          check_f32(w, x);
          if (kind.type == DType::fp4) check_q8(w, x);
        }
      }
    }
  }
}

TEST_CASE("scaled types: every other row of interleaved matrices gives the same bits") {
  std::uint64_t seed = 300;
  for (const std::size_t blocks : {1, 5, 16, 19}) {
    ScaledWeights w({DType::fp4, ScaleType::e8m0}, 6, 32 * blocks, Scales::ordinary, ++seed, 0, 2);
    for (const std::size_t tokens : {1, 3}) {
      check_q8(w, tokens, ++seed);
      check_f32(w, tokens, ++seed);
    }
  }
}

TEST_CASE("scaled types: packed FP4 gives the bits of MXFP4 blocks with its codes and scales") {
  constexpr std::size_t blocks = 37, rows = 6, columns = 32 * blocks;
  ScaledWeights w({DType::fp4, ScaleType::e8m0}, rows, columns, Scales::ordinary, 400);
  std::vector<std::byte> packed(rows * blocks * 17);
  for (std::size_t b = 0; b < rows * blocks; ++b) {
    const std::byte* const from = w.codes.data() + 16 * b;
    const auto nibble = [&](std::size_t i) { return from[i / 2] >> (i % 2 * 4) & std::byte{15}; };
    packed[17 * b] = w.scales.data()[b];
    for (std::size_t j = 0; j < 16; ++j) packed[17 * b + 1 + j] = nibble(j) | nibble(j + 16) << 4;
  }
  const auto x = Random(401).floats(3 * columns);
  const Activations rounded(DType::mxfp4, x, 3, columns);
  const WeightRows classic{packed.data(), blocks * 17, rows, columns};
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    std::vector<float> expected(3 * rows), y(3 * rows);
    table->matmul_q8[id_of(DType::mxfp4)](classic, rounded.view(), 3, expected.data(), rows);
    table->matmul_q8[id_of(DType::fp4)](w.view(), rounded.view(), 3, y.data(), rows);
    CHECK(first_difference(y, expected) == -1);
    table->matmul_f32[id_of(DType::mxfp4)](classic, {x.data(), columns}, 3, expected.data(), rows);
    table->matmul_f32[id_of(DType::fp4)](w.view(), {x.data(), columns}, 3, y.data(), rows);
    CHECK(first_difference(y, expected) == -1);
  }
}

TEST_CASE("scaled types: results lie within the rounding bound of the float64 sum") {
  std::uint64_t seed = 500;
  for (const Kind kind : kinds) {
    ScaledWeights w(kind, 4, 1600, Scales::ordinary, ++seed);
    const auto x = Random(++seed).floats(w.columns);
    for (const KernelTable* table : supported_kernels()) {
      std::vector<float> y(w.rows);
      table->matmul_f32[id_of(kind.type)](w.view(), {x.data(), w.columns}, 1, y.data(), w.rows);
      for (std::size_t r = 0; r < w.rows; ++r) {
        std::vector<double> exact(w.columns);
        reference::decode_scaled(kind.type, w.view(), r, exact.data());
        double sum = 0, magnitude = 0;
        for (std::size_t i = 0; i < exact.size(); ++i) {
          sum += exact[i] * static_cast<double>(x[i]);
          magnitude += std::fabs(exact[i] * static_cast<double>(x[i]));
        }
        INFO(w.describe(*table));
        CHECK(std::fabs(y[r] - sum) <= 107 * 0x1p-24 * magnitude);
      }
    }
  }
}

}  // namespace millrace
