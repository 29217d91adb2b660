#include "kernels/math.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernels/math-inl.h"

namespace millrace {

namespace {

// The part of an ISA policy that exp and what is built on it use, one lane wide.
struct OneLane {
  using F32x16 = float;
  static float zero() { return 0; }
  static float set1(float x) { return x; }
  static float add(float a, float b) { return a + b; }
  static float sub(float a, float b) { return a - b; }
  static float mul(float a, float b) { return a * b; }
  static float div(float a, float b) { return a / b; }
  static float fma(float a, float b, float c) { return std::fma(a, b, c); }
  static float max(float a, float b) { return a > b ? a : b; }
  static float min(float a, float b) { return a < b ? a : b; }
  static float scale_by_power(float x, float power) {
    const int n = power == power ? static_cast<int>(power) : 0;
    const int half = n >> 1;
    return x * power_of_two(half) * power_of_two(n - half);
  }

 private:
  static float power_of_two(int n) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
  }
};

constexpr double ln2_high = 0x1.62e42fefa2000p-1;  // 40 bits: exact times an exponent
constexpr double ln2_low = 0x1.9ef35793c7673p-41;
constexpr double round_magic = 0x1.8p52;  // adding it rounds to an integer, kept in the low bits

double not_a_number() { return std::numeric_limits<double>::quiet_NaN(); }

// c[0] + z * (c[1] + z * (…)), by fma.
template <std::size_t count>
double horner(const double (&c)[count], double z) {
  double sum = c[count - 1];
  for (std::size_t i = count - 1; i-- > 0;) sum = std::fma(sum, z, c[i]);
  return sum;
}

double power_of_two(std::int64_t n) {  // -1022 <= n <= 1023
  return std::bit_cast<double>(static_cast<std::uint64_t>(n + 1023) << 52);
}

// A number as an unevaluated sum; low is at most half a unit in the last place of high.
struct TwoPart {
  double high;
  double low;
};

// Exact a + b for |a| >= |b|.
TwoPart quick_two_sum(double a, double b) {
  const double sum = a + b;
  return {sum, b - (sum - a)};
}

// Exact a + b.
TwoPart two_sum(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// exp(x + tail), |tail| far below |x|. Taylor's coefficients suffice at |r| <= ln(2)/2: the first
// one left out, r^14 / 14!, is below 5e-18.
double exp_two_part(double x, double tail) {
  if (x != x) return x;
  if (x > 710) return std::numeric_limits<double>::infinity();
  if (x < -746) return 0;
  constexpr double inverse_factorials[] = {
      1.0 / 2,     1.0 / 6,      1.0 / 24,      1.0 / 120,      1.0 / 720,       1.0 / 5040,
      1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
  constexpr double log2_e = 0x1.71547652b82fep+0;
  const double n = std::fma(x, log2_e, round_magic) - round_magic;
  const double r_high = std::fma(-n, ln2_high, x);  // exact
  const double r_low = std::fma(-n, ln2_low, tail);
  const double r = r_high + r_low;
  const double correction = (r_high - r) + r_low;
  const double poly = std::fma(r * r, horner(inverse_factorials, r), correction);
  const double y = 1.0 + (r + poly);
  const std::int64_t exponent = static_cast<std::int64_t>(n);
  const std::int64_t half = exponent >> 1;
  return y * power_of_two(half) * power_of_two(exponent - half);  // the first product is exact
}

// log(x) of a positive, finite x to about 60 bits. x = 2^n * (1 + f), 1 + f near 1; with
// s = f / (2 + f), log(1 + f) = 2s + 2s^3/3 + 2s^5/5 + …, where only 2s needs two parts.
TwoPart log_two_part(double x) {
  std::int64_t n = 0;
  if (x < std::numeric_limits<double>::min()) {
    x *= 0x1p54;
    n = -54;
  }
  std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
  n += static_cast<std::int64_t>(bits >> 52) - 1023;
  bits = (bits & 0xfffffffffffff) | 0x3ff0000000000000;
  double m = std::bit_cast<double>(bits);
  if (m > 0x1.6a09e667f3bcdp+0) {  // sqrt(2)
    m *= 0.5;
    n += 1;
  }
  const double f = m - 1.0;
  const double divisor = 2.0 + f;
  const double divisor_low = f - (divisor - 2.0);
  const double s = f / divisor;
  const double s_low = (std::fma(-s, divisor, f) - s * divisor_low) / divisor;
  constexpr double odd_inverses[] = {2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9,  2.0 / 11, 2.0 / 13,
                                     2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21, 2.0 / 23};
  const double z = s * s;
  const double term =
      s * z * horner(odd_inverses, z);  // below a hundredth of 2s: one part is enough

  const double exponent = static_cast<double>(n);
  const TwoPart first = two_sum(exponent * ln2_high, 2.0 * s);  // the product is exact
  const TwoPart second = two_sum(first.high, term);
  const double low = first.low + second.low + std::fma(exponent, ln2_low, 2.0 * s_low);
  return quick_two_sum(second.high, low);
}

}  // namespace

float exp_f32(float x) noexcept { return exp_lanes<OneLane>(x); }

float sigmoid_f32(float x) noexcept { return sigmoid_lanes<OneLane>(x); }

float softplus_f32(float x) noexcept {
  const double wide = x;
  const double small = exp_f64(wide > 0 ? -wide : wide);  // at most 1
  // The series where 1 + small would round away what matters.
  const double tail =
      small < 0x1p-13 ? small * (1 - small * (0.5 - small / 3)) : log_f64(1 + small);
  return static_cast<float>(wide > 0 ? wide + tail : tail);
}

double exp_f64(double x) noexcept { return exp_two_part(x, 0); }

double log_f64(double x) noexcept {
  if (!(x > 0)) return x == 0 ? -std::numeric_limits<double>::infinity() : not_a_number();
  if (x > std::numeric_limits<double>::max()) return x;
  const TwoPart parts = log_two_part(x);
  return parts.high + parts.low;
}

double pow_f64(double base, double exponent) noexcept {
  if (!(base > 0) || base > std::numeric_limits<double>::max()) return not_a_number();
  const TwoPart log = log_two_part(base);
  const double product = exponent * log.high;
  const double product_low = std::fma(exponent, log.high, -product) + exponent * log.low;
  return exp_two_part(product, product_low);
}

void sincos_f64(double x, double& sine, double& cosine) noexcept {
  sine = cosine = not_a_number();
  if (!(std::fabs(x) < 1e9)) return;
  constexpr double half_pi[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54,
                                -0x1.f1976b7ed8fbcp-110};
  constexpr double two_over_pi = 0x1.45f306dc9c883p-1;
  const double magic = std::fma(x, two_over_pi, round_magic);
  const double n = magic - round_magic;
  const std::uint64_t quadrant = std::bit_cast<std::uint64_t>(magic) & 3;

  const double first = std::fma(-n, half_pi[0], x);  // exact: below 1 and a multiple of 2^-53
  const double product = n * half_pi[1];
  const double product_low = std::fma(n, half_pi[1], -product);
  const TwoPart difference = two_sum(first, -product);
  const TwoPart reduced =
      quick_two_sum(difference.high, difference.low - std::fma(n, half_pi[2], product_low));
  const double r = reduced.high;
  const double z = r * r;

  // Taylor up to r^17 and r^18: the next terms are below 1e-19.
  constexpr double sine_terms[] = {
      -1.0 / 6,        1.0 / 120,        -1.0 / 5040,          1.0 / 362880,
      -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000, 1.0 / 355687428096000};
  constexpr double cosine_terms[] = {
      1.0 / 24,        -1.0 / 720,         1.0 / 40320,          -1.0 / 3628800,
      1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000, -1.0 / 6402373705728000};
  const double cosine_tail = std::fma(-r, reduced.low, z * z * horner(cosine_terms, z));
  const double half_z = 0.5 * z;
  const double near_one = 1.0 - half_z;
  const double c = near_one + (((1.0 - near_one) - half_z) + cosine_tail);
  const double sine_tail = std::fma(reduced.low, near_one, r * z * horner(sine_terms, z));
  const double s = r + sine_tail;

  sine = (quadrant & 1) != 0 ? c : s;
  cosine = (quadrant & 1) != 0 ? s : c;
  if ((quadrant & 2) != 0) sine = -sine;
  if (quadrant == 1 || quadrant == 2) cosine = -cosine;
}

}  // namespace millrace
