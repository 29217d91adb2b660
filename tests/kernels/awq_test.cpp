// AWQ: 4-bit codes whose rows lie side by side, scales and zeros apart.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>

#include "kernels/dispatch.h"
#include "kernels/reference_scaled.h"
#include "tests/kernels/weight_cases.h"

namespace millrace {
namespace {

using namespace testing;

constexpr std::size_t awq = static_cast<std::size_t>(DType::awq);

// Random codes, zeros and scales, each ending where memory ends; the view's rows are the last ones
// of `all_rows` of the matrix in memory.
struct AwqWeights {
  std::size_t rows, columns, all_rows;
  GuardedArray<std::byte> codes, zeros;
  GuardedArray<std::uint16_t> scales;

  AwqWeights(std::size_t rows_, std::size_t columns_, Scales of, std::uint64_t seed,
             std::size_t all_rows_ = 0)
      : rows(rows_),
        columns(columns_),
        all_rows(std::max(rows_, all_rows_)),
        codes(columns_ * all_rows / 2),
        zeros(columns_ / 128 * all_rows / 2),
        scales(columns_ / 128 * all_rows) {
    Random random(seed);
    for (GuardedArray<std::byte>* bytes : {&codes, &zeros})
      for (std::size_t i = 0; i < bytes->span().size(); ++i)
        bytes->data()[i] = static_cast<std::byte>(random.bits() >> 20);
    for (std::size_t i = 0; i < scales.span().size(); ++i) scales.data()[i] = half_bits(random, of);
  }
  WeightRows view() {
    const std::size_t before = all_rows - rows;
    return {.data = codes.data() + before / 2,
            .row_bytes = all_rows / 2,
            .rows = rows,
            .columns = columns,
            .scales = reinterpret_cast<const std::byte*>(scales.data() + before),
            .scale_row_bytes = 2 * all_rows,
            .scale_type = ScaleType::f16,
            .zeros = zeros.data() + before / 2};
  }
  std::string describe(const KernelTable& table) const {
    return std::string(table.name) + " AWQ, " + std::to_string(rows) + " of " +
           std::to_string(all_rows) + " rows x " + std::to_string(columns);
  }
};

void check_f32(AwqWeights& w, const std::vector<float>& x) {
  const std::size_t tokens = x.size() / w.columns;
  const GuardedArray<float> guarded(x);
  std::vector<float> expected;
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t r = 0; r < w.rows; ++r)
      expected.push_back(
          reference::dot_scaled_f32(DType::awq, w.view(), r, x.data() + t * w.columns));
  for (const KernelTable* table : supported_kernels()) {
    GuardedArray<float> y(expected.size());
    table->matmul_f32[awq](w.view(), {guarded.span().data(), w.columns}, tokens, y.data(), w.rows);
    INFO(w.describe(*table) << ", tokens " << tokens);
    CHECK(first_difference({y.span().begin(), y.span().end()}, expected) == -1);
  }
}

void check_f32(AwqWeights& w, std::size_t tokens, std::uint64_t seed) {
  check_f32(w, Random(seed).floats(tokens * w.columns));
}

void check_q8(AwqWeights& w, const Activations& x, std::size_t tokens) {
  std::vector<float> expected;
  for (std::size_t t = 0; t < tokens; ++t)
    for (std::size_t r = 0; r < w.rows; ++r)
      expected.push_back(reference::dot_awq_q8(w.view(), r, x.q.data() + t * x.stride,
                                               x.scale.data() + t * x.blocks));
  for (const KernelTable* table : supported_kernels()) {
    GuardedArray<float> y(expected.size());
    table->matmul_q8[awq](w.view(), x.view(), tokens, y.data(), w.rows);
    INFO(w.describe(*table) << ", tokens " << tokens);
    CHECK(first_difference({y.span().begin(), y.span().end()}, expected) == -1);
  }
}

void check_q8(AwqWeights& w, std::size_t tokens, std::uint64_t seed) {
  check_q8(w, Activations(DType::awq, Random(seed).floats(tokens * w.columns), tokens, w.columns),
           tokens);
}

}  // namespace

TEST_CASE("awq: a word's nibbles belong to its eight rows in the format's order") {
  // One column group of eight rows: all words are 0x76543210, the zeros 2, the scales 1.
  std::vector<std::uint32_t> codes(128, 0x76543210U);
  const std::uint32_t zeros = 0x22222222U;
  const std::vector<std::uint16_t> scales(8, 0x3c00);
  const WeightRows view{.data = reinterpret_cast<const std::byte*>(codes.data()),
                        .row_bytes = 4,
                        .rows = 8,
                        .columns = 128,
                        .scales = reinterpret_cast<const std::byte*>(scales.data()),
                        .scale_row_bytes = 16,
                        .scale_type = ScaleType::f16,
                        .zeros = reinterpret_cast<const std::byte*>(&zeros)};
  constexpr int nibble_of_row[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  std::vector<float> ones(128, 1.0F);
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    std::vector<float> sums(8), row(128);
    table->matmul_f32[awq](view, {ones.data(), 128}, 1, sums.data(), 8);
    for (std::size_t r = 0; r < 8; ++r) {
      const auto value = static_cast<float>(nibble_of_row[r] - 2);
      CHECK(sums[r] == 128 * value);
      table->decode_scaled[awq](view, r, row.data());
      CHECK(first_difference(row, std::vector<float>(128, value)) == -1);
    }
  }
}

TEST_CASE("awq: each element is the float64 definition rounded once, whatever the scale") {
  std::uint64_t seed = 1;
  for (const Scales of : {Scales::ordinary, Scales::denormal, Scales::extreme}) {
    for (const std::size_t columns : {128, 384}) {
      AwqWeights w(40, columns, of, ++seed, 64);
      for (std::size_t r = 0; r < w.rows; ++r) {
        std::vector<double> exact(columns);
        reference::decode_scaled(DType::awq, w.view(), r, exact.data());
        const std::vector<float> expected(exact.begin(), exact.end());
        for (const KernelTable* table : supported_kernels()) {
          GuardedArray<float> out(columns);
          table->decode_scaled[awq](w.view(), r, out.data());
          INFO(w.describe(*table) << ", row " << r);
          CHECK(first_difference({out.span().begin(), out.span().end()}, expected) == -1);
        }
      }
    }
  }
}

TEST_CASE("awq: float products give the canonical bits for all sizes and tails") {
  std::uint64_t seed = 100;
  for (const std::size_t rows : {8, 56, 64, 128, 136, 248, 256, 520}) {
    AwqWeights w(rows, rows % 128 == 0 ? 640 : 256, Scales::ordinary, ++seed, rows % 3 * 8 + rows);
    for (const std::size_t tokens : {1, 2, 5}) check_f32(w, tokens, ++seed);
  }
  for (const Scales of : {Scales::denormal, Scales::extreme}) {
    AwqWeights odd(152, 256, of, ++seed);
    for (const std::size_t tokens : {1, 6}) check_f32(odd, tokens, ++seed);
  }
}

TEST_CASE("awq: products with rounded activations give the canonical bits") {
  std::uint64_t seed = 200;
  for (const std::size_t rows :
       {8, 16, 56, 64, 120, 128, 136, 192, 256, 504, 512, 520, 648, 1152}) {
    for (const std::size_t groups : {1, 3, 5}) {
      AwqWeights w(rows, 128 * groups, Scales::ordinary, ++seed, rows % 3 * 8 + rows);
      for (const std::size_t tokens : {1, 2, 4, 7}) check_q8(w, tokens, ++seed);
    }
  }
  AwqWeights deep(136, 128 * 19, Scales::ordinary, ++seed);
  for (const std::size_t tokens : {1, 9}) check_q8(deep, tokens, ++seed);
  for (const Scales of : {Scales::denormal, Scales::extreme}) {
    AwqWeights odd(648, 384, of, ++seed);
    for (const std::size_t tokens : {1, 5}) check_q8(odd, tokens, ++seed);
  }
}

TEST_CASE("awq: the largest codes, zeros and activations stay exact") {
  for (const int code : {0x00, 0xff}) {
    AwqWeights w(128, 256, Scales::ordinary, 300);
    std::fill_n(w.codes.data(), w.codes.span().size(), static_cast<std::byte>(code));
    std::fill_n(w.zeros.data(), w.zeros.span().size(), static_cast<std::byte>(~code));
    for (const float value : {-3.0F, 3.0F, 0.0F})
      check_q8(w, Activations(DType::awq, std::vector<float>(5 * 256, value), 5, 256), 5);
  }
}

TEST_CASE("awq: activations that are zero, huge or denormal give the canonical bits") {
  std::uint64_t seed = 320;
  for (const Scales of : {Scales::ordinary, Scales::denormal, Scales::extreme}) {
    AwqWeights w(136, 384, of, ++seed);
    for (const double magnitude : {0.0, 1e30, 1e-28, 1e-42}) {
      for (const std::size_t tokens : {1, 3, 9}) {
        const auto x = Random(++seed).floats(tokens * w.columns, -magnitude, magnitude);
        check_f32(w, x);
        check_q8(w, Activations(DType::awq, x, tokens, w.columns), tokens);
      }
    }
  }
}

TEST_CASE("awq: products are those of Q8_0 blocks with the codes less their zeros") {
  constexpr std::size_t rows = 136, columns = 640, blocks = columns / 32, tokens = 3;
  constexpr std::size_t nibble_of_row[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  AwqWeights w(rows, columns, Scales::ordinary, 350);
  const auto code = [&](const std::byte* lines, std::size_t line, std::size_t row) {
    const std::size_t nibble = nibble_of_row[row % 8];
    const std::byte two = lines[line * rows / 2 + row / 8 * 4 + nibble / 2];
    return std::to_integer<int>(two) >> nibble % 2 * 4 & 15;
  };
  std::vector<std::byte> packed(rows * blocks * 34);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t b = 0; b < blocks; ++b) {
      std::byte* const block = packed.data() + (r * blocks + b) * 34;
      std::memcpy(block, &w.scales.data()[b / 4 * rows + r], 2);
      for (std::size_t i = 0; i < 32; ++i)
        block[2 + i] = static_cast<std::byte>(code(w.codes.data(), 32 * b + i, r) -
                                              code(w.zeros.data(), b / 4, r));
    }
  }
  const auto x = Random(351).floats(tokens * columns);
  const Activations rounded(DType::q8_0, x, tokens, columns);
  const WeightRows twin{packed.data(), blocks * 34, rows, columns};
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    std::vector<float> expected(tokens * rows), y(tokens * rows);
    table->matmul_q8[id_of(DType::q8_0)](twin, rounded.view(), tokens, expected.data(), rows);
    table->matmul_q8[awq](w.view(), rounded.view(), tokens, y.data(), rows);
    CHECK(first_difference(y, expected) == -1);
    table->matmul_f32[id_of(DType::q8_0)](twin, {x.data(), columns}, tokens, expected.data(), rows);
    table->matmul_f32[awq](w.view(), {x.data(), columns}, tokens, y.data(), rows);
    CHECK(first_difference(y, expected) == -1);
  }
}

TEST_CASE("awq: results lie within the rounding bound of the float64 sum") {
  AwqWeights w(256, 1664, Scales::ordinary, 400);
  const auto x = Random(401).floats(w.columns);
  for (const KernelTable* table : supported_kernels()) {
    std::vector<float> y(w.rows);
    table->matmul_f32[awq](w.view(), {x.data(), w.columns}, 1, y.data(), w.rows);
    for (std::size_t r = 0; r < w.rows; ++r) {
      std::vector<double> exact(w.columns);
      reference::decode_scaled(DType::awq, w.view(), r, exact.data());
      double sum = 0, magnitude = 0;
      for (std::size_t i = 0; i < exact.size(); ++i) {
        sum += exact[i] * static_cast<double>(x[i]);
        magnitude += std::fabs(exact[i] * static_cast<double>(x[i]));
      }
      INFO(w.describe(*table));
      CHECK(std::fabs(y[r] - sum) <= 111 * 0x1p-24 * magnitude);
    }
  }
}

}  // namespace millrace
