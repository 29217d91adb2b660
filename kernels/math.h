// Scalar twins of the kernels' transcendentals, and the double-precision functions that tables are
// built with. Same bits on every machine: no libm but fma, which is exact. Needs the default
// rounding mode and denormals (no flush-to-zero), as all kernels do. NaN gives NaN. Any thread.
#pragma once

namespace millrace {

// The same fma sequence as KernelTable::exp. Error below 0.9 units in the last place of the normal
// results; denormal results are correctly scaled (below 1 unit of the smallest denormal); above
// 88.72284 infinity, below -103.98 zero. exp_f32(0) is exactly 1.
float exp_f32(float x) noexcept;
float sigmoid_f32(float x) noexcept;  // 1 / (1 + exp(-x)); error below 3 units, zero below -88.73
// log(1 + exp(x)), computed in double and rounded once.
float softplus_f32(float x) noexcept;

// Error at most about 1 unit in the last place (relative below 2.3e-16) for results in the normal
// range. log_f64: zero gives -infinity, a negative x NaN.
double exp_f64(double x) noexcept;
double log_f64(double x) noexcept;
// base > 0 (else NaN); exp(exponent * log(base)) with log and product in two parts each: relative
// error below 3e-16 for results in 1e-10..1e10 (what tables need), below 4e-15 in the whole range.
double pow_f64(double base, double exponent) noexcept;
// |x| < 1e9, reduced with a three-part pi/2; absolute error below 1.2e-16, relative below 2.3e-16.
// Both NaN outside that range.
void sincos_f64(double x, double& sine, double& cosine) noexcept;

}  // namespace millrace
