// exp and what is built on it, over an ISA policy: the one place where the sequence of operations
// stands. Also used with one lane by math.cpp.
#pragma once

namespace millrace {
namespace {

// exp(x) = 2^n * exp(r), |r| <= ln(2)/2. Error below 0.9 units in the last place: 0.05 from the
// minimax polynomial (1 + r + r^2 * q(r), q of degree 4), the rest from rounding. The range is
// clamped to where the result is already infinity or 0; scale_by_power rounds once, also to
// denormals. max and min give their second operand when one is NaN, so NaN passes through.
template <class Isa>
typename Isa::F32x16 exp_lanes(typename Isa::F32x16 x) {
  const auto round_magic = Isa::set1(0x1.8p23f);  // adding it rounds to an integer
  x = Isa::min(Isa::set1(89.0f), Isa::max(Isa::set1(-104.0f), x));
  const auto n =
      Isa::sub(Isa::fma(x, Isa::set1(0x1.715476p+0f), round_magic), round_magic);  // x / ln(2)
  auto r = Isa::fma(n, Isa::set1(-0x1.62e43p-1f), x);                              // exact
  r = Isa::fma(n, Isa::set1(0x1.05c61p-29f), r);
  auto sum = Isa::fma(Isa::set1(0x1.6ac144p-10f), r, Isa::set1(0x1.123da6p-7f));
  sum = Isa::fma(sum, r, Isa::set1(0x1.555858p-5f));
  sum = Isa::fma(sum, r, Isa::set1(0x1.55548cp-3f));
  sum = Isa::fma(sum, r, Isa::set1(0x1.fffffcp-2f));
  sum = Isa::fma(sum, r, Isa::set1(1.0f));
  sum = Isa::fma(sum, r, Isa::set1(1.0f));
  return Isa::scale_by_power(sum, n);
}

// 1 / (1 + exp(-x))
template <class Isa>
typename Isa::F32x16 sigmoid_lanes(typename Isa::F32x16 x) {
  const auto one = Isa::set1(1.0f);
  return Isa::div(one, Isa::add(one, exp_lanes<Isa>(Isa::sub(Isa::zero(), x))));
}

// x / (1 + exp(-x)): below -88.73 minus zero, where the exact value is above -2.7e-37.
template <class Isa>
typename Isa::F32x16 silu_lanes(typename Isa::F32x16 x) {
  const auto one = Isa::set1(1.0f);
  return Isa::div(x, Isa::add(one, exp_lanes<Isa>(Isa::sub(Isa::zero(), x))));
}

}  // namespace
}  // namespace millrace
