#include <catch2/catch.hpp>
#include <limits>

#include "kernels/dispatch.h"
#include "tests/kernels/weight_cases.h"

namespace millrace {
namespace {

using namespace testing;

struct Quantized {
  bool finite = false;
  std::vector<std::int8_t> q;
  std::vector<float> scale;
  std::vector<std::int32_t> sum;
};

Quantized quantize(const KernelTable& table, const std::vector<float>& x) {
  const std::size_t stride = q8_stride(x.size());
  const GuardedArray<float> input(x);
  GuardedArray<std::int8_t> q(std::vector<std::int8_t>(stride, 99));
  GuardedArray<float> scale(std::vector<float>(stride / 32, 99.0f));
  GuardedArray<std::int32_t> sum(std::vector<std::int32_t>(stride / 32, 99));
  Quantized out;
  out.finite = table.quantize_q8(input.span().data(), x.size(), q.data(), scale.data(), sum.data());
  out.q.assign(q.span().begin(), q.span().end());
  out.scale.assign(scale.span().begin(), scale.span().end());
  out.sum.assign(sum.span().begin(), sum.span().end());
  return out;
}

void check_against_reference(const std::vector<float>& x) {
  const Activations expected(DType::q8_0, x, 1, x.size());
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name << " " << x.size());
    const Quantized got = quantize(*table, x);
    CHECK(got.finite);
    CHECK(got.q == expected.q);
    CHECK(first_difference(got.scale, expected.scale) == -1);
    CHECK(got.sum == expected.sum);
  }
}

}  // namespace

TEST_CASE("quantize: values, scales, sums and the padding are the same on every ISA") {
  for (std::size_t blocks = 1; blocks <= 35; ++blocks)
    check_against_reference(Random(blocks).floats(32 * blocks));
}

TEST_CASE("quantize: halves round to even, and the largest value becomes 127") {
  std::vector<float> x(32, 0.0f);
  x[0] = 127.0f;
  for (int i = 1; i < 32; ++i) x[static_cast<std::size_t>(i)] = static_cast<float>(i - 16) + 0.5f;
  check_against_reference(x);
  const Quantized got = quantize(*supported_kernels().back(), x);
  CHECK(got.q[0] == 127);
  CHECK(got.q[17] == 2);  // 1.5
  CHECK(got.q[18] == 2);  // 2.5
  CHECK(got.q[15] == 0);  // -0.5
  CHECK(got.scale[0] == 1.0f);
}

TEST_CASE("quantize: magnitudes from zero and denormals to the largest float are handled alike") {
  for (const float magnitude : {0.0f, 1e-45f, 1e-38f, 0x1p-101f, 0x1p-100f, 0x1.8p-100f, 1e-20f,
                                1e30f, std::numeric_limits<float>::max()}) {
    auto x = Random(3).floats(96, -1, 1);
    for (float& value : x) value *= magnitude;
    x[40] = -magnitude;
    check_against_reference(x);
  }
}

TEST_CASE("quantize: a block below 2^-100 counts as zero") {
  for (const KernelTable* table : supported_kernels()) {
    const Quantized below = quantize(*table, std::vector<float>(32, 0x1.fffffep-101f));
    CHECK((below.finite && below.scale[0] == 0.0f && below.q[0] == 0 && below.sum[0] == 0));
    const Quantized at = quantize(*table, std::vector<float>(32, 0x1p-100f));
    CHECK((at.finite && at.scale[0] > 0.0f && at.q[0] == 127 && at.sum[0] == 32 * 127));
  }
}

TEST_CASE("quantize: super-blocks' values, scales and sums are the same on every ISA") {
  for (std::size_t blocks = 1; blocks <= 9; ++blocks) {
    for (const float magnitude : {1.0f, 0.0f, 1e-42f, 0x1p-100f, 1e30f}) {
      auto x = Random(blocks).floats(256 * blocks);
      for (float& value : x) value *= magnitude;
      x[7] = -2.0f * magnitude;
      const Activations expected(DType::q4_k, x, 1, x.size());
      const GuardedArray<float> input(x);
      for (const KernelTable* table : supported_kernels()) {
        INFO(table->name << " " << blocks << " " << magnitude);
        GuardedArray<std::int8_t> q(x.size());
        GuardedArray<float> scale(std::vector<float>(expected.blocks, 99.0f));
        GuardedArray<std::int16_t> sum(x.size() / 16);
        CHECK(table->quantize_q8_super(input.span().data(), x.size(), q.data(), scale.data(),
                                       sum.data()));
        CHECK(std::equal(q.span().begin(), q.span().end(), expected.q.begin()));
        CHECK(first_difference(scale.span(), expected.scale) == -1);
        CHECK(std::equal(sum.span().begin(), sum.span().end(), expected.unit_sum.begin()));
      }
    }
  }
}

TEST_CASE("quantize: a NaN or an infinity anywhere in a super-block is refused") {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    for (std::size_t at = 0; at < 512; at += 37) {
      auto x = Random(at).floats(512);
      x[at] = bad;
      for (const KernelTable* table : supported_kernels()) {
        std::vector<std::int8_t> q(1024);
        std::vector<float> scale(4);
        std::vector<std::int16_t> sum(64);
        CHECK(!table->quantize_q8_super(x.data(), x.size(), q.data(), scale.data(), sum.data()));
      }
    }
  }
}

TEST_CASE("quantize: a NaN or an infinity anywhere is refused") {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN(),
        std::numeric_limits<float>::signaling_NaN()}) {
    for (std::size_t at = 0; at < 64; ++at) {
      auto x = Random(at).floats(64);
      x[at] = bad;
      for (const KernelTable* table : supported_kernels()) CHECK(!quantize(*table, x).finite);
    }
  }
}

TEST_CASE("read_all: sums all 64-bit words once, on every ISA and for every length") {
  for (const std::size_t words : {0, 1, 3, 7, 8, 9, 31, 32, 33, 100, 1000}) {
    std::vector<std::uint64_t> data(words);
    Random random(words);
    std::uint64_t expected = 0;
    for (auto& word : data) expected += word = random.bits();
    const GuardedArray<std::uint64_t> guarded(data);
    for (const KernelTable* table : supported_kernels()) {
      INFO(table->name << " " << words);
      CHECK(table->read_all(reinterpret_cast<const std::byte*>(guarded.span().data()), words * 8) ==
            expected);
    }
  }
}

}  // namespace millrace
