#include "kernels/rope_table.h"

#include <algorithm>
#include <cmath>

#include "kernels/math.h"

namespace millrace {

namespace {

// The pair (as a real number) that turns `turns` times within the original context.
double pair_of_turns(const RopeScaling& scaling, double turns) {
  constexpr double two_pi = 0x1.921fb54442d18p+2;
  const double rotary = static_cast<double>(scaling.rotary);
  return rotary * log_f64(scaling.original_context / (turns * two_pi)) /
         (2.0 * log_f64(scaling.base));
}

}  // namespace

YarnRange yarn_range(const RopeScaling& scaling) noexcept {
  const double low = pair_of_turns(scaling, scaling.beta_fast);
  const double high = pair_of_turns(scaling, scaling.beta_slow);
  return {std::max(0.0, scaling.truncate ? std::floor(low) : low),
          std::min(static_cast<double>(scaling.rotary) - 1.0,
                   scaling.truncate ? std::ceil(high) : high)};
}

void rope_frequencies(const RopeScaling& scaling, double* theta) noexcept {
  const YarnRange range = scaling.yarn ? yarn_range(scaling) : YarnRange{0, 0};
  for (std::size_t i = 0; i < scaling.rotary / 2; ++i) {
    const double pair = static_cast<double>(i);
    double value = pow_f64(scaling.base, -2.0 * pair / static_cast<double>(scaling.rotary));
    if (scaling.pair_factors != nullptr) value /= static_cast<double>(scaling.pair_factors[i]);
    if (scaling.yarn) {
      const double ramp = (pair - range.low) / std::max(0.001, range.high - range.low);
      const double keep = scaling.extension * (1.0 - std::clamp(ramp, 0.0, 1.0));
      theta[i] = value * ((1.0 - keep) / scaling.factor + keep);
    } else {
      theta[i] = value / scaling.factor;
    }
  }
}

double rope_magnitude(const RopeScaling& scaling) noexcept {
  if (!scaling.yarn) return 1;
  if (scaling.extension == 0) return scaling.attention_factor;
  return scaling.attention_factor * (1.0 + 0.1 * log_f64(scaling.factor));
}

void rope_row(const double* theta, std::size_t pairs, std::uint32_t position, double magnitude,
              float* cosine, float* sine) noexcept {
  for (std::size_t i = 0; i < pairs; ++i) {
    double s = 0;
    double c = 0;
    sincos_f64(static_cast<double>(position) * theta[i], s, c);
    cosine[i] = static_cast<float>(magnitude * c);
    sine[i] = static_cast<float>(magnitude * s);
  }
}

}  // namespace millrace
