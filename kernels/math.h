// Scalar twins of the kernels' transcendentals, and the double-precision functions that tables are
// built with. Same bits on every machine: no libm but fma. Any thread.
#pragma once

namespace millrace {

float exp_f32(float x) noexcept;      // the same fma sequence as KernelTable::exp
float sigmoid_f32(float x) noexcept;  // 1 / (1 + exp(-x))

// Relative error below 4e-16 for ordinary arguments. sin and cos reduce any |x| < 1e9 with a
// three-part pi/2.
double exp_f64(double x) noexcept;
double log_f64(double x) noexcept;  // x > 0
double pow_f64(
    double base,
    double exponent) noexcept;  // base > 0; exp(exponent * log(base)) with the product in two parts
void sincos_f64(double x, double& sine, double& cosine) noexcept;

}  // namespace millrace
