// Everything of a layer but products and attention: each ISA gives the bits of scalar, and scalar
// is right.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/blocks.h"
#include "kernels/dispatch.h"
#include "kernels/math.h"
#include "tests/kernels/values.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t counts_max = 67;

const KernelTable& scalar() { return *supported_kernels().front(); }

// Values at an odd place: `offset` floats (and so 4 * offset bytes) from a page's end.
struct Shifted {
  GuardedArray<float> array;
  std::size_t count;
  Shifted(const std::vector<float>& values, std::size_t offset)
      : array(values.size() + offset), count(values.size()) {
    if (count > 0) std::memcpy(array.data(), values.data(), count * sizeof(float));
  }
  float* data() { return array.data(); }
  std::span<const float> span() const { return array.span().first(count); }
};

// Runs `call(table, x, y)` in place on y for scalar and every other ISA, all counts and offsets.
template <class Call>
void same_on_every_isa(double low, double high, Call call) {
  Random random(11);
  for (std::size_t count = 0; count <= counts_max; ++count) {
    const std::vector<float> x = random.floats(count, low, high);
    const std::vector<float> y = random.floats(count, low, high);
    Shifted expected_x(x, 0);
    Shifted expected(y, 0);
    call(scalar(), expected_x.data(), count, expected.data());
    for (const KernelTable* table : supported_kernels()) {
      for (const std::size_t offset : {0u, 1u, 5u}) {
        Shifted input(x, offset);
        Shifted output(y, offset + 2);
        call(*table, input.data(), count, output.data());
        INFO(table->name << ", count " << count << ", offset " << offset);
        REQUIRE(first_difference(expected.span(), output.span()) == -1);
      }
    }
  }
}

// Half precision by the definition: the nearest of all halves, ties to the even one.
float half_value(std::uint32_t half) {
  const std::uint32_t exponent = (half >> 10) & 31;
  const float mantissa = static_cast<float>(half & 0x3ff);
  const float magnitude = exponent == 0
                              ? mantissa * 0x1p-24f
                              : std::ldexp(mantissa + 1024.0f, static_cast<int>(exponent) - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

TEST_CASE("exp on every ISA gives the bits of exp_f32, over the whole range of floats") {
  std::vector<float> x;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 20011) {
    x.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  }
  for (double special = -110; special < 95; special += 0.01) {
    x.push_back(static_cast<float>(special));
  }
  for (const float special : {0.0f, -0.0f, infinity, -infinity, not_a_number}) x.push_back(special);
  std::vector<float> expected(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) expected[i] = exp_f32(x[i]);
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    std::vector<float> out(x.size());
    table->exp(x.data(), x.size(), out.data());
    CHECK(first_difference(expected, out) == -1);
  }
}

TEST_CASE("element-wise kernels: the same bits on every ISA, for every tail and alignment") {
  same_on_every_isa(-30, 30,
                    [](const KernelTable& table, const float* x, std::size_t count, float* y) {
                      table.exp(x, count, y);
                    });
  same_on_every_isa(-30, 30,
                    [](const KernelTable& table, const float* x, std::size_t count, float* y) {
                      table.swiglu(y, x, count, y);
                    });
  same_on_every_isa(-30, 30,
                    [](const KernelTable& table, const float* x, std::size_t count, float* y) {
                      table.swiglu_clamped(y, x, count, {7, 1.702f, 1}, y);
                    });
  same_on_every_isa(-120, 120,
                    [](const KernelTable& table, const float* x, std::size_t count, float* y) {
                      table.sigmoid(x, count, y);
                    });
  same_on_every_isa(-30, 30,
                    [](const KernelTable& table, const float* x, std::size_t count, float* y) {
                      table.add(x, count, y);
                    });
  same_on_every_isa(-30, 30,
                    [](const KernelTable& table, const float* x, std::size_t count, float* y) {
                      table.add_scaled(x, 0.3f, count, y);
                    });
}

TEST_CASE("softmax and norm: the same bits on every ISA, for every tail and alignment") {
  same_on_every_isa(-30, 30,
                    [](const KernelTable& table, const float*, std::size_t count, float* y) {
                      if (count > 0) table.softmax(y, count);
                    });
  same_on_every_isa(-3, 3,
                    [](const KernelTable& table, const float* x, std::size_t count, float* y) {
                      if (count > 0) table.rms_norm(y, x, 1e-5f, count, y);
                    });
}

TEST_CASE("rope: the same bits on every ISA, for every rotary size, the rest untouched") {
  constexpr std::size_t heads = 3;
  Random random(12);
  for (std::size_t rotary = 0; rotary <= counts_max; rotary += 2) {
    const std::size_t head_dim = rotary + 5;
    const std::vector<float> x = random.floats(heads * head_dim);
    const std::vector<float> cosine = random.floats(rotary / 2, -1, 1);
    const std::vector<float> sine = random.floats(rotary / 2, -1, 1);
    for (const bool neox : {false, true}) {
      std::vector<float> expected = x;
      for (std::size_t head = 0; head < heads; ++head) {
        for (std::size_t i = 0; i < rotary / 2; ++i) {
          float& u = expected[head * head_dim + (neox ? i : 2 * i)];
          float& v = expected[head * head_dim + (neox ? i + rotary / 2 : 2 * i + 1)];
          const float turned = std::fma(u, cosine[i], -(v * sine[i]));
          v = std::fma(v, cosine[i], u * sine[i]);
          u = turned;
        }
      }
      for (const KernelTable* table : supported_kernels()) {
        GuardedArray<float> y(x);
        GuardedArray<float> c(cosine);
        GuardedArray<float> s(sine);
        (neox ? table->rope_neox : table->rope_norm)(y.data(), heads, head_dim, rotary, c.data(),
                                                     s.data());
        INFO(table->name << ", rotary " << rotary << ", neox " << neox);
        REQUIRE(first_difference(expected, y.span()) == -1);
      }
    }
  }
}

TEST_CASE("rms_norm agrees with float64 and takes tiny and zero rows") {
  Random random(13);
  for (const std::size_t count : {1u, 64u, 2048u, 7168u}) {
    const std::vector<float> x = random.floats(count);
    const std::vector<float> weight = random.floats(count);
    std::vector<float> y(count);
    scalar().rms_norm(x.data(), weight.data(), 1e-6f, count, y.data());
    double sum = 0;
    for (const float value : x) sum += static_cast<double>(value) * static_cast<double>(value);
    const double factor = 1 / std::sqrt(sum / static_cast<double>(count) + 1e-6);
    for (std::size_t i = 0; i < count; ++i) {
      const double exact = static_cast<double>(x[i]) * factor * static_cast<double>(weight[i]);
      REQUIRE(std::fabs(static_cast<double>(y[i]) - exact) <= 4e-7 * std::fabs(exact));
    }
  }
  const std::vector<float> zero(40, 0.0f);
  std::vector<float> y(40, 1.0f);
  scalar().rms_norm(zero.data(), zero.data(), 1e-6f, 40, y.data());
  CHECK(y == zero);
}

TEST_CASE("softmax agrees with float64, also with minus infinity and large values") {
  Random random(14);
  std::vector<float> x = random.floats(300, -20, 20);
  x[7] = -infinity;
  x[299] = -infinity;
  for (float& value : x) value += 3000.0f;
  std::vector<float> y = x;
  scalar().softmax(y.data(), y.size());
  double sum = 0;
  float largest = -infinity;
  for (const float value : x) largest = std::max(largest, value);
  for (const float value : x)
    sum += std::exp(static_cast<double>(value) - static_cast<double>(largest));
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double exact = std::exp(static_cast<double>(x[i]) - static_cast<double>(largest)) / sum;
    CHECK(static_cast<double>(y[i]) == Approx(exact).epsilon(5e-7));
  }
  CHECK(y[7] == 0.0f);
  CHECK(y[299] == 0.0f);
}

TEST_CASE("softmax: special inputs end the same way on every ISA") {
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    std::vector<float> one = {-12345.0f};
    table->softmax(one.data(), 1);
    CHECK(one[0] == 1.0f);
    std::vector<float> extreme(20, -3e38f);
    extreme[3] = 3e38f;
    table->softmax(extreme.data(), extreme.size());
    CHECK(extreme[3] == 1.0f);
    CHECK(extreme[4] == 0.0f);
    for (const float bad : {infinity, not_a_number}) {
      std::vector<float> x(20, 0.5f);
      x[18] = bad;
      table->softmax(x.data(), x.size());
      for (const float value : x) CHECK(std::isnan(value));
    }
    std::vector<float> nothing(3, -infinity);
    table->softmax(nothing.data(), nothing.size());
    CHECK(std::isnan(nothing[0]));
  }
}

TEST_CASE("swiglu is silu(gate) * up: accurate where it matters, right at the extremes") {
  Random random(15);
  const std::vector<float> gate = random.floats(4000, -80, 80);
  const std::vector<float> up = random.floats(4000);
  std::vector<float> y(4000);
  scalar().swiglu(gate.data(), up.data(), y.size(), y.data());
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double g = static_cast<double>(gate[i]);
    const double exact = g / (1 + std::exp(-g)) * static_cast<double>(up[i]);
    REQUIRE(std::fabs(static_cast<double>(y[i]) - exact) <= 3e-7 * std::fabs(exact) + 1e-37);
  }
  const std::vector<float> extreme_gate = {0.0f,   -0.0f,    1e30f,        -1e30f,
                                           -95.0f, infinity, not_a_number, 3e38f};
  const std::vector<float> extreme_up = {5.0f, 5.0f, 2.0f, 2.0f, 1.0f, 1.0f, 1.0f, 10.0f};
  const std::vector<float> expected = {0.0f,  -0.0f,    2e30f,        -0.0f,
                                       -0.0f, infinity, not_a_number, infinity};
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    std::vector<float> out(expected.size());
    table->swiglu(extreme_gate.data(), extreme_up.data(), out.size(), out.data());
    CHECK(first_difference(expected, out) == -1);
  }
}

TEST_CASE("to_f16 rounds to the nearest half, ties to even, for every half and its neighbourhood") {
  std::vector<float> x;
  std::vector<std::uint16_t> expected;
  const auto both_signs = [&](float value, std::uint32_t half) {
    x.push_back(value);
    expected.push_back(static_cast<std::uint16_t>(half));
    x.push_back(-value);
    expected.push_back(static_cast<std::uint16_t>(half | 0x8000));
  };
  for (std::uint32_t half = 0; half < 0x7c00; ++half) {
    const float value = half_value(half);
    both_signs(value, half);
    // The next half above 65504 would be 65536: from the midpoint on it is infinity.
    const float next = half == 0x7bff ? 65536.0f : half_value(half + 1);
    const float middle = value + (next - value) / 2;  // exact
    both_signs(middle, half + (half & 1));
    both_signs(std::nextafter(middle, 0.0f), half);
    both_signs(std::nextafter(middle, infinity), half + 1);
  }
  both_signs(infinity, 0x7c00);
  both_signs(3e38f, 0x7c00);
  both_signs(1e-30f, 0);
  both_signs(std::numeric_limits<float>::denorm_min(), 0);
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    std::vector<std::uint16_t> out(x.size());
    table->to_f16(x.data(), x.size(), out.data());
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < x.size(); ++i) wrong += out[i] != expected[i] ? 1 : 0;
    CHECK(wrong == 0);
  }
}

TEST_CASE("to_f16: a NaN stays a NaN of the same sign and payload; every tail is written exactly") {
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    const std::vector<float> nans = {std::bit_cast<float>(0x7f801000u),
                                     std::bit_cast<float>(0xffc12345u), not_a_number};
    std::uint16_t out[3];
    table->to_f16(nans.data(), 3, out);
    CHECK(out[0] == 0x7e00);  // quiet; the payload's lowest bits are cut
    CHECK(out[1] == 0xfe09);
    CHECK(out[2] == 0x7e00);
    Random random(16);
    for (std::size_t count = 0; count <= counts_max; ++count) {
      GuardedArray<float> x(random.floats(count));
      GuardedArray<std::uint16_t> y(count);
      std::vector<std::uint16_t> expected(count);
      table->to_f16(x.data(), count, y.data());
      for (std::size_t i = 0; i < count; ++i) scalar().to_f16(x.data() + i, 1, &expected[i]);
      REQUIRE(std::vector<std::uint16_t>(y.span().begin(), y.span().end()) == expected);
    }
  }
}

TEST_CASE("all_finite finds a NaN or infinity at every place") {
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    for (std::size_t count = 0; count <= counts_max; ++count) {
      GuardedArray<float> x(std::vector<float>(count, -3e38f));
      REQUIRE(table->all_finite(x.data(), count));
      for (std::size_t i = 0; i < count; ++i) {
        for (const float bad : {infinity, -infinity, not_a_number}) {
          x.data()[i] = bad;
          REQUIRE_FALSE(table->all_finite(x.data(), count));
        }
        x.data()[i] = 0.0f;
      }
    }
  }
}

TEST_CASE("sigmoid on every ISA gives the bits of sigmoid_f32") {
  std::vector<float> x = Random(31).floats(1000, -100, 100);
  for (const float special : {0.0f, -0.0f, infinity, -infinity, not_a_number}) x.push_back(special);
  std::vector<float> expected(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) expected[i] = sigmoid_f32(x[i]);
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    std::vector<float> out(x.size());
    table->sigmoid(x.data(), x.size(), out.data());
    CHECK(first_difference(expected, out) == -1);
  }
}

TEST_CASE("swiglu_clamped agrees with float64: the gate has no lower bound, up has both") {
  Random random(32);
  const std::vector<float> gate = random.floats(2000, -12, 12);
  const std::vector<float> up = random.floats(2000, -12, 12);
  std::vector<float> y(gate.size());
  for (const SwigluClamp& clamp : {SwigluClamp{7, 1.702f, 1}, SwigluClamp{10, 1, 0}}) {
    scalar().swiglu_clamped(gate.data(), up.data(), y.size(), clamp, y.data());
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double limit = static_cast<double>(clamp.limit);
      const double g = std::fmin(static_cast<double>(gate[i]), limit);
      const double u = std::fmax(-limit, std::fmin(static_cast<double>(up[i]), limit));
      const double sum = u + static_cast<double>(clamp.offset);
      const double exact = g / (1 + std::exp(-static_cast<double>(clamp.slope) * g)) * sum;
      const double rounding =
          2e-6 * std::fabs(exact) + 2e-7 * std::fabs(g);  // of slope*g, u+offset
      REQUIRE(std::fabs(static_cast<double>(y[i]) - exact) <= rounding);
    }
  }
}

TEST_CASE("swiglu_clamped: infinities are clamped, a NaN stays one") {
  for (const KernelTable* table : supported_kernels()) {
    INFO(table->name);
    const std::vector<float> gate = {infinity, -infinity, not_a_number, 1, 1, 1};
    const std::vector<float> up = {0, 0, 0, infinity, -infinity, not_a_number};
    std::vector<float> y(gate.size());
    table->swiglu_clamped(gate.data(), up.data(), y.size(), {7, 1.702f, 1}, y.data());
    CHECK(y[0] == Approx(7.0).epsilon(1e-4));
    CHECK(std::isnan(y[1]));  // -infinity / infinity
    CHECK(std::isnan(y[2]));
    CHECK(y[3] == Approx(8 * 0.845795).epsilon(1e-4));
    CHECK(y[4] == Approx(-6 * 0.845795).epsilon(1e-4));
    CHECK(std::isnan(y[5]));
  }
}

TEST_CASE("to_q8_0: the codes of quantize_q8 and a half scale, zeros behind the last value") {
  Random random(33);
  for (std::size_t count = 0; count <= 70; ++count) {
    const std::vector<float> x = random.floats(count, -5, 5);
    const std::size_t blocks = (count + 31) / 32;
    std::vector<float> padded(blocks * 32);
    std::copy(x.begin(), x.end(), padded.begin());
    std::vector<std::int8_t> q(q8_stride(padded.size()));
    std::vector<float> scale(q.size() / 32);
    std::vector<std::int32_t> sum(q.size() / 32);
    REQUIRE(scalar().quantize_q8(padded.data(), padded.size(), q.data(), scale.data(), sum.data()));
    for (const KernelTable* table : supported_kernels()) {
      INFO(table->name << ", count " << count);
      GuardedArray<float> input(x);
      std::vector<std::byte> out(blocks * sizeof(BlockQ8_0) + 1, std::byte{0x5a});
      table->to_q8_0(input.data(), count, out.data());
      CHECK(out.back() == std::byte{0x5a});
      for (std::size_t b = 0; b < blocks; ++b) {
        BlockQ8_0 block;
        std::memcpy(&block, &out[b * sizeof block], sizeof block);
        std::uint16_t half = 0;
        scalar().to_f16(&scale[b], 1, &half);
        CHECK(block.d == half);
        CHECK(std::memcmp(block.q, &q[b * 32], 32) == 0);
      }
    }
  }
  std::vector<float> bad(32, 1.0f);
  bad[5] = infinity;
  for (const KernelTable* table : supported_kernels()) {
    BlockQ8_0 block;
    table->to_q8_0(bad.data(), bad.size(), reinterpret_cast<std::byte*>(&block));
    CHECK((block.d & 0x7c00) == 0x7c00);  // a half NaN
    CHECK((block.d & 0x3ff) != 0);
  }
}
