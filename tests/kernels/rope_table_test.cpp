#include "kernels/rope_table.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

using namespace millrace;

namespace {

std::vector<double> frequencies(const RopeScaling& scaling) {
  std::vector<double> theta(scaling.rotary / 2);
  rope_frequencies(scaling, theta.data());
  return theta;
}

// One line of the published check values: pairs 0, 8, 12, 16, 20, 31.
struct YarnCase {
  const char* model;
  double base, factor, beta_fast, beta_slow;
  double low, high;
  double theta[6];
};

RopeScaling yarn_of(const YarnCase& expected) {
  RopeScaling scaling;
  scaling.rotary = 64;
  scaling.base = expected.base;
  scaling.factor = expected.factor;
  scaling.yarn = true;
  scaling.original_context = 4096;
  scaling.beta_fast = expected.beta_fast;
  scaling.beta_slow = expected.beta_slow;
  return scaling;
}

constexpr YarnCase yarn_cases[] = {
    {"gpt-oss",
     150000,
     32,
     32,
     1,
     8,
     18,
     {1, 0.0508132748, 0.00701571391, 0.000580947502, 1.81883367e-05, 3.02351143e-07}},
    {"DeepSeek-V3",
     10000,
     40,
     32,
     1,
     10,
     23,
     {1, 0.1, 0.0268793601, 0.0055, 0.000790569415, 3.33380358e-06}},
    {"Kimi-K2, betas 32 and 1",
     50000,
     32,
     32,
     1,
     8,
     20,
     {1, 0.0668740305, 0.0117092309, 0.00158388148, 3.61404677e-05, 8.76441291e-07}},
    {"Kimi-K2, betas 1 and 1",
     50000,
     32,
     1,
     1,
     19,
     20,
     {1, 0.0668740305, 0.0172936334, 0.00447213595, 3.61404677e-05, 8.76441291e-07}},
};

}  // namespace

TEST_CASE("rope frequencies are powers of the base, divided by the factors") {
  RopeScaling scaling;
  scaling.rotary = 128;
  scaling.base = 500000;
  std::vector<double> theta = frequencies(scaling);
  for (std::size_t i = 0; i < theta.size(); ++i) {
    const double exact = std::pow(500000.0, -2.0 * static_cast<double>(i) / 128);
    CHECK(theta[i] == Approx(exact).epsilon(1e-15));
  }
  CHECK(theta[0] == 1.0);
  CHECK(rope_magnitude(scaling) == 1.0);

  std::vector<float> pair_factors(64, 1.0f);
  pair_factors[3] = 8.0f;
  scaling.pair_factors = pair_factors.data();
  scaling.factor = 4;
  const std::vector<double> stretched = frequencies(scaling);
  CHECK(stretched[2] == theta[2] / 4);
  CHECK(stretched[3] == theta[3] / 32);
}

TEST_CASE("YaRN frequencies agree with the check values of four models") {
  for (const YarnCase& expected : yarn_cases) {
    INFO(expected.model);
    const RopeScaling scaling = yarn_of(expected);
    CHECK(yarn_range(scaling).low == expected.low);
    CHECK(yarn_range(scaling).high == expected.high);
    const std::vector<double> theta = frequencies(scaling);
    const std::size_t pairs[] = {0, 8, 12, 16, 20, 31};
    for (std::size_t i = 0; i < 6; ++i) {
      CHECK(theta[pairs[i]] == Approx(expected.theta[i]).epsilon(5e-9));
    }
  }
}

TEST_CASE("YaRN's magnitude grows with the logarithm of the factor, unless extension is off") {
  RopeScaling scaling = yarn_of(yarn_cases[0]);
  CHECK(rope_magnitude(scaling) == Approx(1.3465735902799727).epsilon(1e-15));
  scaling.attention_factor = 0.5;
  CHECK(rope_magnitude(scaling) == Approx(0.5 * 1.3465735902799727).epsilon(1e-15));
  scaling.extension = 0;
  CHECK(rope_magnitude(scaling) == 0.5);
  CHECK(frequencies(scaling)[0] == 1.0 / 32);  // nothing is kept
}

TEST_CASE("YaRN without truncation keeps the borders between pairs") {
  RopeScaling scaling = yarn_of(yarn_cases[0]);
  scaling.truncate = false;
  CHECK(yarn_range(scaling).low == Approx(8.0928).epsilon(1e-5));
  CHECK(yarn_range(scaling).high == Approx(17.3980).epsilon(1e-5));
  CHECK(frequencies(scaling)[12] == Approx(0.00679495949).epsilon(5e-9));
}

TEST_CASE("rope rows are cosines and sines rounded once, at far positions too") {
  RopeScaling scaling;
  scaling.rotary = 64;
  scaling.base = 1e6;
  const std::vector<double> theta = frequencies(scaling);
  std::vector<float> cosine(32);
  std::vector<float> sine(32);
  for (const std::uint32_t position : {0u, 1u, 77u, 4095u, 131071u, (1u << 24) - 1}) {
    rope_row(theta.data(), 32, position, 1.25, cosine.data(), sine.data());
    for (std::size_t i = 0; i < 32; ++i) {
      const long double angle = static_cast<long double>(position * theta[i]);
      CHECK(cosine[i] ==
            Approx(static_cast<double>(1.25L * std::cos(angle))).margin(8e-8).epsilon(0));
      CHECK(sine[i] ==
            Approx(static_cast<double>(1.25L * std::sin(angle))).margin(8e-8).epsilon(0));
    }
  }
}
