// The kernels of gated delta nets: each ISA gives the bits of the definition written plainly, and
// the definition is the recurrence in float64.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstddef>
#include <deque>
#include <vector>

#include "kernels/dispatch.h"
#include "tests/kernels/values.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

struct Step {
  std::size_t key_dim, value_dim;
  std::vector<float> q, k, v, state;
  float decay = 0.9F, beta = 0.6F, scale = 0.25F;

  Step(std::size_t keys, std::size_t values, std::uint64_t seed)
      : key_dim(keys), value_dim(values) {
    Random random(seed);
    q = random.floats(keys, -1, 1);
    k = random.floats(keys, -1, 1);
    v = random.floats(values);
    state = random.floats(keys * values);
  }
};

// kernel_table.h's definition, element by element.
std::vector<float> plain_step(Step& step) {
  std::vector<float> out(step.value_dim);
  for (std::size_t j = 0; j < step.value_dim; ++j) {
    float found = 0;
    for (std::size_t i = 0; i < step.key_dim; ++i)
      found = std::fma(step.k[i], step.decay * step.state[i * step.value_dim + j], found);
    const float error = step.beta * (step.v[j] - found);
    float sum = 0;
    for (std::size_t i = 0; i < step.key_dim; ++i) {
      float& s = step.state[i * step.value_dim + j];
      s = std::fma(step.k[i], error, step.decay * s);
      sum = std::fma(step.q[i], s, sum);
    }
    out[j] = step.scale * sum;
  }
  return out;
}

}  // namespace

TEST_CASE("delta_step: every ISA gives the bits of the definition, for every width") {
  for (std::size_t value_dim = 1; value_dim <= 67; ++value_dim) {
    const Step start(5 + value_dim % 7, value_dim, value_dim);
    Step expected = start;
    const std::vector<float> out = plain_step(expected);
    for (const KernelTable* table : supported_kernels()) {
      GuardedArray<float> q(start.q), k(start.k), v(start.v), state(start.state);
      GuardedArray<float> found(value_dim);
      table->delta_step({.q = q.data(),
                         .k = k.data(),
                         .v = v.data(),
                         .key_dim = start.key_dim,
                         .value_dim = value_dim,
                         .decay = start.decay,
                         .beta = start.beta,
                         .scale = start.scale,
                         .state = state.data(),
                         .out = found.data()});
      INFO(table->name << ", width " << value_dim);
      REQUIRE(first_difference(out, found.span()) == -1);
      REQUIRE(first_difference(expected.state, state.span()) == -1);
    }
  }
}

TEST_CASE("delta_step: many steps stay near the recurrence in float64") {
  constexpr std::size_t keys = 64, values = 48;
  Step step(keys, values, 3);
  std::fill(step.state.begin(), step.state.end(), 0.0F);
  std::vector<double> exact(keys * values, 0.0);
  Random random(5);
  double worst = 0;
  double largest = 0;
  for (int token = 0; token < 200; ++token) {
    const std::vector<float> k = random.floats(keys, -0.2, 0.2);
    const std::vector<float> v = random.floats(values);
    const std::vector<float> q = random.floats(keys, -0.2, 0.2);
    std::vector<float> out(values);
    supported_kernels().back()->delta_step({q.data(), k.data(), v.data(), keys, values, 0.95F, 0.5F,
                                            0.125F, step.state.data(), out.data()});
    for (std::size_t j = 0; j < values; ++j) {
      double found = 0;
      for (std::size_t i = 0; i < keys; ++i) {
        exact[i * values + j] *= double{0.95F};
        found += exact[i * values + j] * double{k[i]};
      }
      const double error = 0.5 * (double{v[j]} - found);
      double sum = 0;
      for (std::size_t i = 0; i < keys; ++i) {
        exact[i * values + j] += double{k[i]} * error;
        sum += exact[i * values + j] * double{q[i]};
      }
      worst = std::max(worst, std::fabs(double{out[j]} - 0.125 * sum));
      largest = std::max(largest, std::fabs(0.125 * sum));
    }
  }
  CHECK(largest > 0.05);
  CHECK(worst < 2e-6 * largest);
}

TEST_CASE("conv_silu: every ISA gives the bits of the definition, for every tail") {
  Random random(21);
  for (std::size_t count = 1; count <= 50; ++count) {
    const std::size_t taps = 1 + count % 5;
    const std::size_t stride = count + 3;
    const std::vector<float> weights = random.floats((taps - 1) * stride + count, -2, 2);
    std::vector<std::vector<float>> rows;
    for (std::size_t tap = 0; tap < taps; ++tap) rows.push_back(random.floats(count, -3, 3));
    for (const KernelTable* table : supported_kernels()) {
      std::vector<float> expected(count), gates(count), ones(count, 1.0F);
      for (std::size_t c = 0; c < count; ++c)
        for (std::size_t tap = 0; tap < taps; ++tap)
          gates[c] = std::fma(weights[tap * stride + c], rows[tap][c], gates[c]);
      supported_kernels().front()->swiglu(gates.data(), ones.data(), count, expected.data());
      GuardedArray<float> guarded_weights(weights);
      std::deque<GuardedArray<float>> guarded_rows;
      std::vector<const float*> pointers;
      for (const auto& row : rows) guarded_rows.emplace_back(row);
      for (auto& row : guarded_rows) pointers.push_back(row.data());
      GuardedArray<float> out(count);
      table->conv_silu({.rows = pointers.data(),
                        .taps = taps,
                        .weights = guarded_weights.data(),
                        .weight_stride = stride,
                        .count = count,
                        .out = out.data()});
      INFO(table->name << ", count " << count << ", taps " << taps);
      REQUIRE(first_difference(expected, out.span()) == -1);
    }
  }
}

TEST_CASE("l2_norm: the same bits on every ISA, right, and short rows are divided by eps") {
  Random random(22);
  for (std::size_t count = 1; count <= 67; ++count) {
    const std::vector<float> x = random.floats(count);
    std::vector<float> expected(count);
    supported_kernels().front()->l2_norm(x.data(), 1e-6F, count, expected.data());
    double squares = 0;
    for (const float value : x) squares += double{value} * double{value};
    for (std::size_t i = 0; i < count; ++i)
      REQUIRE(std::fabs(double{expected[i]} - double{x[i]} / std::sqrt(squares)) < 3e-7);
    for (const KernelTable* table : supported_kernels()) {
      GuardedArray<float> y(x);
      table->l2_norm(y.data(), 1e-6F, count, y.data());
      INFO(table->name << ", count " << count);
      REQUIRE(first_difference(expected, y.span()) == -1);
    }
  }
  const std::vector<float> tiny = {3e-4F, 4e-4F};
  std::vector<float> y(2);
  supported_kernels().back()->l2_norm(tiny.data(), 0.5F, 2, y.data());
  CHECK(y[0] == Approx(6e-4));
  CHECK(y[1] == Approx(8e-4));
}
