#include <catch2/catch.hpp>
#include <numeric>
#include <string>

#include "kernels/dispatch.h"
#include "tests/kernels/weight_cases.h"

namespace millrace {
namespace {

using namespace testing;

std::string describe(const KernelTable& table, const Weights& w, std::size_t tokens) {
  return std::string(table.name) + " " + dtype_info(w.type).name + " " + std::to_string(w.rows) +
         " x " + std::to_string(w.columns) + ", tokens " + std::to_string(tokens);
}

// Outputs of one product, with a wider stride than needed and guarded ends.
template <class Run>
std::vector<float> outputs(std::size_t rows, std::size_t tokens, Run run) {
  const std::size_t stride = rows + 3;
  GuardedArray<float> y(std::vector<float>((tokens - 1) * stride + rows, untouched));
  run(y.data(), stride);
  std::vector<float> out;
  for (std::size_t i = 0; i < y.span().size(); ++i) {
    if (i % stride < rows) {
      out.push_back(y.data()[i]);
    } else {
      CHECK(y.data()[i] == untouched);
    }
  }
  return out;
}

std::vector<float> run_q8(const KernelTable& table, Weights& w, const Activations& x) {
  return outputs(w.rows, x.tokens, [&](float* y, std::size_t stride) {
    multiply_q8(table, w.type, w.view(), x, x.tokens, y, stride);
  });
}

std::vector<float> run_f32(const KernelTable& table, Weights& w, const float* x, std::size_t stride,
                           std::size_t tokens) {
  return outputs(w.rows, tokens, [&](float* y, std::size_t y_stride) {
    table.matmul_f32[id_of(w.type)](w.view(), {x, stride}, tokens, y, y_stride);
  });
}

void check_q8(Weights& w, const Activations& x) {
  std::vector<float> expected;
  for (std::size_t t = 0; t < x.tokens; ++t)
    for (std::size_t r = 0; r < w.rows; ++r)
      expected.push_back(reference::dot_q8(w.type, w.row(r), w.columns, x.q.data() + t * x.stride,
                                           x.scale.data() + t * x.blocks));
  for (const KernelTable* table : supported_kernels()) {
    INFO(describe(*table, w, x.tokens));
    CHECK(first_difference(run_q8(*table, w, x), expected) == -1);
  }
}

void check_f32(Weights& w, const std::vector<float>& x, std::size_t tokens) {
  std::vector<float> expected;
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t r = 0; r < w.rows; ++r)
      expected.push_back(reference::dot_f32(w.type, w.row(r), w.columns, x.data() + t * w.columns));
  const GuardedArray<float> guarded(x);
  for (const KernelTable* table : supported_kernels()) {
    INFO(describe(*table, w, tokens));
    CHECK(first_difference(run_f32(*table, w, guarded.span().data(), w.columns, tokens),
                           expected) == -1);
  }
}

}  // namespace

TEST_CASE("matmul q8: every ISA gives the canonical bits for all sizes and token counts") {
  std::uint64_t seed = 1;
  for (const DType type : block_types) {
    for (const std::size_t blocks : {1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 32, 33, 48, 90, 400}) {
      for (const std::size_t rows : {1, 2, 3, 4, 5, 9}) {
        Weights w(type, rows, 32 * blocks, Scales::ordinary, ++seed);
        for (const std::size_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
          if (tokens > 2 && blocks % 3 != 0) continue;  // keeps the run short
          check_q8(
              w, Activations(w.type, Random(++seed).floats(tokens * w.columns), tokens, w.columns));
        }
      }
    }
  }
}

TEST_CASE(
    "matmul q8: every ISA gives the canonical bits for all counts of super-blocks and tokens") {
  std::uint64_t seed = 50;
  for (const DType type : super_types) {
    for (const std::size_t blocks : {1, 2, 3, 4, 5, 6, 8, 15, 17, 20, 33}) {
      for (const std::size_t rows : {1, 2, 3, 4, 5, 7, 8}) {
        if (rows > 2 && blocks % 3 != 0) continue;  // keeps the run short
        Weights w(type, rows, 256 * blocks, Scales::ordinary, ++seed);
        for (const std::size_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9}) {
          if (tokens > 2 && blocks != 3 && blocks != 20) continue;
          check_q8(w,
                   Activations(type, Random(++seed).floats(tokens * w.columns), tokens, w.columns));
        }
      }
    }
  }
}

TEST_CASE("matmul f32: no rows write and read nothing") {
  const auto check = [](DType type) {
    Weights w(type, 0, 768, Scales::ordinary, 92);
    for (const std::size_t tokens : {1, 2, 9})
      check_f32(w, Random(93).floats(tokens * 768), tokens);
  };
  for (const DType type : float_types) check(type);
  for (const DType type : quantized_types()) check(type);
}

TEST_CASE("matmul q8: no rows write and read nothing") {
  for (const DType type : quantized_types()) {
    for (const std::size_t columns : {256, 768, 4352}) {
      Weights w(type, 0, columns, Scales::ordinary, 90);
      for (const std::size_t tokens : {1, 2, 3, 9})
        check_q8(w, Activations(type, Random(91).floats(tokens * columns), tokens, columns));
    }
  }
}

TEST_CASE("matmul q8: zero, denormal, infinite and NaN weight scales give the canonical bits") {
  std::uint64_t seed = 100;
  for (const DType type : quantized_types()) {
    for (const Scales scales : {Scales::denormal, Scales::extreme}) {
      for (const std::size_t blocks : {1, 6, 16, 21}) {
        Weights w(type, 5, columns_of(type, blocks), scales, ++seed);
        for (const std::size_t tokens : {1, 5})
          check_q8(
              w, Activations(w.type, Random(++seed).floats(tokens * w.columns), tokens, w.columns));
      }
    }
  }
}

// Rows that end within a group of 16 blocks go through one product together, as many as make up
// whole groups: none may see another's scales.
TEST_CASE("matmul q8: one token, rows that share groups with their neighbours") {
  std::uint64_t seed = 150;
  for (const DType type : block_types) {
    for (const Scales scales : {Scales::ordinary, Scales::denormal, Scales::extreme}) {
      for (const std::size_t blocks : {4, 8, 17, 18, 20, 23, 24, 28, 40, 72}) {
        const std::size_t together = 16 / std::gcd(blocks, std::size_t{16});
        Weights w(type, 2 * together + 3, 32 * blocks, scales, ++seed);
        for (const double magnitude : {1.0, 1e-28, 1e-42})
          check_q8(w, Activations(w.type, Random(++seed).floats(w.columns, -magnitude, magnitude),
                                  1, w.columns));
      }
    }
  }
}

TEST_CASE("matmul q8: activations that are zero, huge, tiny or at full range give canonical bits") {
  std::uint64_t seed = 200;
  for (const DType type : quantized_types()) {
    Weights w(type, 6, columns_of(type, 37), Scales::ordinary, ++seed);
    for (const double magnitude : {0.0, 1e30, 1e-28, 1e-42}) {
      const auto x = Random(++seed).floats(3 * w.columns, -magnitude, magnitude);
      check_q8(w, Activations(w.type, x, 3, w.columns));
      check_q8(w, Activations(w.type, {x.begin(), x.begin() + w.columns}, 1, w.columns));
    }
    std::vector<float> full(3 * w.columns);  // every q is 127 or -127
    for (std::size_t i = 0; i < full.size(); ++i) full[i] = i / w.columns == 1 ? -3.0f : 3.0f;
    check_q8(w, Activations(w.type, full, 3, w.columns));
  }
}

TEST_CASE("matmul q8: weights at the end of their range do not saturate") {
  for (const DType type : quantized_types()) {
    for (const unsigned code : {0x80u, 0x7fu, 0xffu, 0x00u, 0x77u}) {
      Weights w(type, 4, columns_of(type, 17), Scales::ordinary, 7);
      const DTypeInfo& info = dtype_info(type);
      for (std::size_t i = 0; i < w.rows * w.row_bytes; ++i)
        if (!is_scale_byte(type, i % info.block_bytes))
          w.bytes.data()[i] = static_cast<std::byte>(code);
      for (const float value : {2.0f, -2.0f})
        check_q8(w, Activations(w.type, std::vector<float>(2 * w.columns, value), 2, w.columns));
    }
  }
}

TEST_CASE("matmul f32: every ISA gives the canonical bits for all sizes and token counts") {
  std::uint64_t seed = 300;
  for (const DType type : float_types) {
    for (std::size_t columns = 1; columns <= 35; ++columns) {
      Weights w(type, 1 + columns % 5, columns, Scales::ordinary, ++seed);
      for (const std::size_t tokens : {1, 2, 4, 9})
        check_f32(w, Random(++seed).floats(tokens * columns), tokens);
    }
    Weights wide(type, 9, 1000, Scales::ordinary, ++seed);
    check_f32(wide, Random(++seed).floats(7 * 1000), 7);
  }
  for (const DType type : quantized_types()) {
    for (const std::size_t blocks : {1, 2, 3, 16, 17, 45}) {
      Weights w(type, 7, columns_of(type, blocks), Scales::ordinary, ++seed);
      for (const std::size_t tokens : {1, 2, 3, 4, 5, 9})
        check_f32(w, Random(++seed).floats(tokens * w.columns), tokens);
    }
  }
}

TEST_CASE("matmul f32: infinities, NaNs and denormals on both sides give the canonical bits") {
  std::uint64_t seed = 400;
  const auto check = [&seed](DType type, std::size_t columns) {
    for (const Scales scales : {Scales::denormal, Scales::extreme}) {
      Weights w(type, 6, columns, scales, ++seed);
      check_f32(w, Random(++seed).floats(5 * columns), 5);
      Random random(++seed);
      std::vector<float> odd(columns);
      for (float& x : odd) x = any_float(random, Scales::extreme);
      check_f32(w, odd, 1);
    }
  };
  for (const DType type : float_types) check(type, 77);
  for (const DType type : quantized_types()) check(type, columns_of(type, 3));
}

TEST_CASE("matmul: weights and activations need no alignment") {
  std::uint64_t seed = 500;
  for (const DType type : quantized_types()) {
    Weights w(type, 5, columns_of(type, 19), Scales::ordinary, ++seed);
    const Activations x(type, Random(++seed).floats(2 * w.columns), 2, w.columns);
    std::vector<float> expected;
    for (const KernelTable* table : supported_kernels()) {
      if (expected.empty()) expected = run_q8(*table, w, x);
      for (std::size_t shift = 1; shift < 67; shift += 13) {
        std::vector<std::byte> weights(shift + w.rows * w.row_bytes);
        std::memcpy(weights.data() + shift, w.bytes.data(), w.rows * w.row_bytes);
        std::vector<std::int8_t> q(shift + x.q.size());
        std::copy(x.q.begin(), x.q.end(), q.begin() + static_cast<std::ptrdiff_t>(shift));
        std::vector<float> y(expected.size());
        multiply_q8(*table, type, {weights.data() + shift, w.row_bytes, w.rows, w.columns}, x, 2,
                    y.data(), w.rows, q.data() + shift);
        INFO(describe(*table, w, 2) << " shift " << shift);
        CHECK(first_difference(y, expected) == -1);
      }
    }
  }
}

TEST_CASE("matmul: a row of a taller matrix gives the same bits alone and among others") {
  for (const DType type : quantized_types()) {
    Weights w(type, 11, columns_of(type, 21), Scales::ordinary, 41);
    const Activations x(type, Random(42).floats(w.columns), 1, w.columns);
    for (const KernelTable* table : supported_kernels()) {
      const auto all = run_q8(*table, w, x);
      for (std::size_t r = 0; r < w.rows; ++r) {
        float one = 0;
        multiply_q8(*table, type, {w.row(r), w.row_bytes, 1, w.columns}, x, 1, &one, 1);
        CHECK(same_bits(one, all[r]));
      }
    }
  }
}

TEST_CASE("matmul: results lie within the rounding bound of the float64 sum") {
  // Each of the 16 chains adds columns / 512 (or / 16) terms, then the tree 4 times; a term's own
  // roundings add at most 3 more.
  std::uint64_t seed = 600;
  const auto within = [](double value, const reference::Dot64& exact, std::size_t steps) {
    return std::fabs(value - exact.sum) <=
           static_cast<double>(steps + 7) * 0x1p-24 * exact.magnitude;
  };
  const auto check_type = [&](DType type) {
    Weights w(type, 8, columns_of(type, 50), Scales::ordinary, ++seed);
    const auto x = Random(++seed).floats(w.columns);
    const Activations quantized(type, x, 1, w.columns);
    const std::vector<double> exact_x(x.begin(), x.end());
    std::vector<double> rounded_x(w.columns);
    for (std::size_t i = 0; i < w.columns; ++i)
      rounded_x[i] = static_cast<double>(quantized.scale[i / quantized.block]) * quantized.q[i];
    for (const KernelTable* table : supported_kernels()) {
      const auto y = run_f32(*table, w, x.data(), w.columns, 1);
      for (std::size_t r = 0; r < w.rows; ++r)
        CHECK(within(y[r], reference::dot_f64(type, w.row(r), w.columns, exact_x.data()), 100));
      if (dtype_info(type).block_elems == 1) continue;
      const auto y8 = run_q8(*table, w, quantized);
      for (std::size_t r = 0; r < w.rows; ++r)
        CHECK(within(y8[r], reference::dot_f64(type, w.row(r), w.columns, rounded_x.data()), 4));
    }
  };
  for (const DType type : quantized_types()) check_type(type);
  for (const DType type : float_types) check_type(type);
}

}  // namespace millrace
