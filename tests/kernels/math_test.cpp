#include "kernels/math.h"

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

#include "tests/kernels/values.h"

using namespace millrace;
using millrace::testing::infinity;
using millrace::testing::Random;
using millrace::testing::unit_of;

namespace {

// |value - exact| in units in the last place of a double at `exact`.
double error_in_units(double value, long double exact) {
  int exponent = 0;
  std::frexp(static_cast<double>(exact), &exponent);
  return std::fabs(static_cast<double>((static_cast<long double>(value) - exact) /
                                       std::ldexp(1.0L, exponent - 53)));
}

}  // namespace

TEST_CASE("exp_f32 stays below 0.9 units over the whole range of floats") {
  double worst_normal = 0;
  double worst_denormal = 0;
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32); bits += 1009) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
    if (std::isnan(x)) continue;
    const double exact = std::exp(static_cast<double>(x));
    const float y = exp_f32(x);
    if (exact > 0x1.ffffffp127) {
      CHECK(y == infinity);
      continue;
    }
    const double error = std::fabs(static_cast<double>(y) - exact) / unit_of(exact);
    double& worst = exact >= 0x1p-126 ? worst_normal : worst_denormal;
    worst = std::max(worst, error);
  }
  CHECK(worst_normal < 0.9);
  CHECK(worst_denormal < 1.0);
}

TEST_CASE("exp_f32 is exact where it must be: zero, infinities, NaN, the ends of the range") {
  CHECK(exp_f32(0.0f) == 1.0f);
  CHECK(exp_f32(-0.0f) == 1.0f);
  CHECK(exp_f32(infinity) == infinity);
  CHECK(std::bit_cast<std::uint32_t>(exp_f32(-infinity)) == 0);
  CHECK(std::isnan(exp_f32(std::numeric_limits<float>::quiet_NaN())));
  CHECK(exp_f32(88.72283f) < infinity);
  CHECK(exp_f32(88.72284f) == infinity);
  CHECK(exp_f32(-103.97f) == 0x1p-149f);
  CHECK(exp_f32(-103.98f) == 0.0f);
  CHECK(exp_f32(-1e30f) == 0.0f);
  CHECK(exp_f32(1e30f) == infinity);
}

TEST_CASE("sigmoid_f32 stays below 3 units and reaches its limits") {
  Random random(1);
  for (int i = 0; i < 200000; ++i) {
    const float x = static_cast<float>(random.uniform(-87, 40));
    const double exact = 1 / (1 + std::exp(-static_cast<double>(x)));
    REQUIRE(std::fabs(static_cast<double>(sigmoid_f32(x)) - exact) < 3 * unit_of(exact));
  }
  CHECK(sigmoid_f32(0) == 0.5f);
  CHECK(sigmoid_f32(infinity) == 1.0f);
  CHECK(sigmoid_f32(-infinity) == 0.0f);
  CHECK(std::isnan(sigmoid_f32(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("softplus_f32 is log(1 + exp(x)) rounded once, also far from zero") {
  Random random(2);
  for (int i = 0; i < 100000; ++i) {
    const float x = static_cast<float>(random.uniform(-86, 100));
    const double exact =
        x > 0 ? double{x} + std::log1p(std::exp(-double{x})) : std::log1p(std::exp(double{x}));
    REQUIRE(std::fabs(static_cast<double>(softplus_f32(x)) - exact) <= 0.5001 * unit_of(exact));
  }
  CHECK(softplus_f32(0) == 0x1.62e43p-1f);
  CHECK(softplus_f32(infinity) == infinity);
  CHECK(softplus_f32(-infinity) == 0.0f);
  CHECK(std::isnan(softplus_f32(std::numeric_limits<float>::quiet_NaN())));
}

TEST_CASE("exp_f64 and log_f64 agree with long double to about one unit") {
  Random random(2);
  double worst_exp = 0;
  double worst_log = 0;
  for (int i = 0; i < 100000; ++i) {
    const double x = random.uniform(-708, 709);
    worst_exp =
        std::max(worst_exp, error_in_units(exp_f64(x), std::exp(static_cast<long double>(x))));
    double y = std::exp(random.uniform(-700, 700));
    if (i % 3 == 1) y = random.uniform(0.5, 1.5);
    if (i % 3 == 2) y = 1 + random.uniform(-1e-6, 1e-6);
    if (y == 1) continue;
    worst_log =
        std::max(worst_log, error_in_units(log_f64(y), std::log(static_cast<long double>(y))));
  }
  CHECK(worst_exp < 1.01);
  CHECK(worst_log < 0.6);
}

TEST_CASE("exp_f64 and log_f64 keep their special values") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  CHECK(exp_f64(0) == 1.0);
  CHECK(exp_f64(710) == inf);
  CHECK(exp_f64(-inf) == 0.0);
  CHECK(exp_f64(inf) == inf);
  CHECK(exp_f64(-745.1) == 0x1p-1074);
  CHECK(std::isnan(exp_f64(nan)));
  CHECK(log_f64(1) == 0.0);
  CHECK(log_f64(0) == -inf);
  CHECK(log_f64(inf) == inf);
  CHECK(log_f64(0x1p-1074) == Approx(-744.4400719213812).epsilon(1e-15));
  CHECK(std::isnan(log_f64(-1)));
  CHECK(std::isnan(log_f64(nan)));
}

TEST_CASE("pow_f64 has a relative error below 3e-16 where tables need it, 4e-15 elsewhere") {
  Random random(3);
  double worst = 0;
  double worst_moderate = 0;
  for (int i = 0; i < 100000; ++i) {
    const double base = i % 2 == 0 ? random.uniform(1.01, 1e7) : random.uniform(0.01, 0.99);
    const bool moderate = i % 3 != 0;
    const double exponent = random.uniform(-690, 690) / std::log(base) * (moderate ? 0.033 : 1);
    const auto exact = std::pow(static_cast<long double>(base), static_cast<long double>(exponent));
    const double error = std::fabs(static_cast<double>((pow_f64(base, exponent) - exact) / exact));
    worst = std::max(worst, error);
    if (moderate) worst_moderate = std::max(worst_moderate, error);
  }
  CHECK(worst_moderate * 1e16 < 3);
  CHECK(worst * 1e16 < 40);
  CHECK(pow_f64(10000, 0) == 1.0);
  CHECK(pow_f64(2, 10) == 1024.0);
  CHECK(std::isnan(pow_f64(-2, 2)));
  CHECK(std::isnan(pow_f64(0, 2)));
}

TEST_CASE("sincos_f64 is right up to 1e9, next to multiples of pi/2 too") {
  Random random(4);
  double worst_absolute = 0;
  double worst_relative = 0;
  for (int i = 0; i < 100000; ++i) {
    double x = random.uniform(-1, 1) * std::pow(10.0, random.uniform(-3, 9));
    // long double's own reduction is good to 1e-19 * x only; keep it well below what is tested.
    if (i % 3 == 1) x = random.uniform(-4, 4);
    if (i % 3 == 2) x = std::round(random.uniform(0, 1000)) * 0x1.921fb54442d18p+0;
    double sine = 0;
    double cosine = 0;
    sincos_f64(x, sine, cosine);
    const long double exact_sine = std::sin(static_cast<long double>(x));
    const long double exact_cosine = std::cos(static_cast<long double>(x));
    const double sine_error = std::fabs(static_cast<double>(sine - exact_sine));
    const double cosine_error = std::fabs(static_cast<double>(cosine - exact_cosine));
    worst_absolute = std::max({worst_absolute, sine_error, cosine_error});
    if (exact_sine == 0 || exact_cosine == 0) continue;
    worst_relative =
        std::max({worst_relative, sine_error / std::fabs(static_cast<double>(exact_sine)),
                  cosine_error / std::fabs(static_cast<double>(exact_cosine))});
  }
  CHECK(worst_absolute * 1e16 < 1.2);
  CHECK(worst_relative * 1e16 < 2.3);
}

TEST_CASE("sincos_f64 knows zero and refuses what it cannot reduce") {
  double sine = 1;
  double cosine = 0;
  sincos_f64(0, sine, cosine);
  CHECK(sine == 0.0);
  CHECK(cosine == 1.0);
  for (const double x : {1e9, -1e9, 1e300, std::numeric_limits<double>::infinity(),
                         std::numeric_limits<double>::quiet_NaN()}) {
    sincos_f64(x, sine, cosine);
    CHECK(std::isnan(sine));
    CHECK(std::isnan(cosine));
  }
}
