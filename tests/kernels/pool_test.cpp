// Pooling with a softmax per channel: the definition's bits on every ISA, right in float64, and the
// numbers of a worked example.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/math.h"
#include "tests/kernels/values.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

struct Items {
  std::vector<std::vector<float>> scores, values;

  Items(std::size_t items, std::size_t channels, std::uint64_t seed) {
    Random random(seed);
    for (std::size_t t = 0; t < items; ++t) {
      scores.push_back(random.floats(channels, -6, 6));
      values.push_back(random.floats(channels, -3, 3));
    }
  }
};

std::vector<float> pool(const KernelTable& table, const Items& items, std::size_t channels) {
  std::vector<const float*> scores, values;
  for (const auto& row : items.scores) scores.push_back(row.data());
  for (const auto& row : items.values) values.push_back(row.data());
  GuardedArray<float> out(channels);
  table.softmax_pool(scores.data(), values.data(), scores.size(), channels, out.data());
  return {out.span().begin(), out.span().end()};
}

}  // namespace

TEST_CASE("softmax_pool: the definition's bits on every ISA, for every tail") {
  for (const std::size_t items : {1u, 4u, 8u, 128u}) {
    for (std::size_t channels = 1; channels <= 35; ++channels) {
      const Items world(items, channels, channels);
      std::vector<float> expected(channels);
      for (std::size_t c = 0; c < channels; ++c) {
        float largest = world.scores[0][c];
        for (const auto& row : world.scores) largest = std::max(largest, row[c]);
        float weights = 0;
        float sum = 0;
        for (std::size_t t = 0; t < items; ++t) {
          const float weight = exp_f32(world.scores[t][c] - largest);
          weights += weight;
          sum = std::fma(weight, world.values[t][c], sum);
        }
        expected[c] = sum / weights;
      }
      for (const KernelTable* table : supported_kernels()) {
        INFO(table->name << ", " << items << " items, " << channels << " channels");
        REQUIRE(first_difference(expected, pool(*table, world, channels)) == -1);
      }
    }
  }
}

TEST_CASE("softmax_pool agrees with float64") {
  const Items world(128, 40, 3);
  const std::vector<float> out = pool(*supported_kernels().back(), world, 40);
  for (std::size_t c = 0; c < 40; ++c) {
    double weights = 0;
    double sum = 0;
    for (std::size_t t = 0; t < 128; ++t) {
      const double weight = std::exp(static_cast<double>(world.scores[t][c]));
      weights += weight;
      sum += weight * static_cast<double>(world.values[t][c]);
    }
    CHECK(static_cast<double>(out[c]) == Approx(sum / weights).margin(1e-6));
  }
}

TEST_CASE("softmax_pool: a NaN stays in its channel") {
  Items world(4, 20, 5);
  world.scores[2][17] = std::numeric_limits<float>::quiet_NaN();
  for (const KernelTable* table : supported_kernels()) {
    const std::vector<float> out = pool(*table, world, 20);
    for (std::size_t c = 0; c < 20; ++c) CHECK(std::isnan(out[c]) == (c == 17));
  }
}

TEST_CASE("softmax_pool: a worked example of overlapping blocks") {
  // Rows 0 to 3 are the block before, with its first channels, 4 to 7 the own one.
  float kv[8][4], sc[8][4];
  for (int r = 0; r < 8; ++r)
    for (int j = 0; j < 4; ++j) {
      kv[r][j] = static_cast<float>((3 * r + 5 * j) % 9 - 4) / 2;
      sc[r][j] = static_cast<float>((5 * r + 3 * j) % 7 - 3) / 4;
    }
  std::vector<const float*> scores, values;
  for (int r = 0; r < 8; ++r) {
    values.push_back(kv[r] + (r < 4 ? 0 : 2));
    scores.push_back(sc[r] + (r < 4 ? 0 : 2));
  }
  float out[2];
  const KernelTable& table = *supported_kernels().back();
  table.softmax_pool(scores.data(), values.data(), 8, 2, out);
  CHECK(out[0] == Approx(-0.1529638).margin(1e-6));
  CHECK(out[1] == Approx(-0.2355610).margin(1e-6));
  table.softmax_pool(scores.data() + 4, values.data() + 4, 4, 2, out);
  CHECK(out[0] == Approx(0.1098616).margin(1e-6));
  CHECK(out[1] == Approx(-0.5317484).margin(1e-6));
}
