#include "runtime/estimate/hit_curve.h"

#include <algorithm>
#include <cmath>

namespace millrace {

namespace {

struct Exponents {
  double low, middle, high;
};
// See README.md. Low: a router that chooses evenly, as nobody knows better.
constexpr Exponents many_experts = {1, 7, 10};
constexpr Exponents some_experts = {1, 2.5, 7};
constexpr Exponents few_experts = {1, 1.5, 4};
constexpr std::uint32_t many = 128, some = 64;

}  // namespace

HitRange expected_hits(double cache_share, std::uint32_t experts_used, std::uint32_t experts) {
  const double share = std::clamp(cache_share, 0.0, 1.0);
  if (experts == 0 || share >= 1) return {1, 1, 1};
  const Exponents a = experts >= many ? many_experts : experts >= some ? some_experts : few_experts;
  const auto curve = [share](double exponent) { return 1 - std::pow(1 - share, exponent); };
  // Caches below one token's experts: everything is read again before it is asked for again, but
  // for what the floors of the layers keep.
  const double token_share = static_cast<double>(experts_used) / experts;
  const double fill = token_share > 0 ? std::min(1.0, share / token_share) : 1.0;
  const bool cliff = fill < 1;
  return {cliff ? 0 : curve(a.low), curve(a.middle) * fill * (cliff ? 0.5 : 1),
          curve(a.high) * fill};
}

}  // namespace millrace
