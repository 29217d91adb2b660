// Residual streams: the numbers of a worked example, a plain computation in double, and the same
// bits however tokens are shared over threads or batches.
#include "model/blocks/residual.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/dispatch.h"
#include "tests/kernels/values.h"

using namespace millrace;
using millrace::testing::Random;

namespace {

const KernelTable& kernels() { return *supported_kernels().back(); }

Hparams shape(std::uint32_t streams, std::uint32_t width, std::uint32_t iterations) {
  Hparams h;
  h.width = width;
  h.rms_eps = 1e-6F;
  h.streams = {.count = streams, .iterations = iterations, .epsilon = 1e-6F};
  return h;
}

// Weights of one site, or of the head.
struct Site {
  std::vector<float> matrix, base, scale;
  StreamWeights weights;

  Site(std::vector<float> of_matrix, std::vector<float> of_base, std::vector<float> of_scale)
      : matrix(std::move(of_matrix)), base(std::move(of_base)), scale(std::move(of_scale)) {
    const std::size_t columns = matrix.size() / base.size();
    weights = {{}, base.data(), scale.data()};
    weights.matrix.data = reinterpret_cast<const std::byte*>(matrix.data());
    weights.matrix.row_bytes = columns * sizeof(float);
    weights.matrix.rows = base.size();
    weights.matrix.columns = columns;
  }
};

Site random_site(const Hparams& h, std::size_t rows, std::size_t scales, Random& random) {
  return {random.floats(rows * h.streams.count * h.width, -0.2, 0.2), random.floats(rows, -1, 1),
          random.floats(scales, 0.5, 1.5)};
}

void start(Residual& residual, const Hparams& h, const std::vector<float>& streams,
           std::size_t tokens) {
  const std::size_t all = std::size_t{h.streams.count} * h.width;
  for (std::size_t t = 0; t < tokens; ++t) std::copy_n(&streams[t * all], all, residual.start(t));
}

// The definition in model/blocks/residual.h for one token, in double.
struct Exact {
  std::size_t n, width;
  std::vector<double> x, z, input, mix;

  Exact(const Hparams& h, const float* streams, const Site& site)
      : n(h.streams.count), width(h.width), x(streams, streams + n * width) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double factor =
        1 / std::sqrt(squares / static_cast<double>(x.size()) + static_cast<double>(h.rms_eps));
    for (std::size_t row = 0; row < site.base.size(); ++row) {
      double sum = 0;
      for (std::size_t i = 0; i < x.size(); ++i)
        sum += x[i] * factor * static_cast<double>(site.matrix[row * x.size() + i]);
      const std::size_t part = std::min<std::size_t>(row / n, 2);
      z.push_back(static_cast<double>(site.scale[part]) * sum +
                  static_cast<double>(site.base[row]));
    }
    epsilon = static_cast<double>(h.streams.epsilon);
    for (std::size_t c = 0; c < width; ++c) {
      double sum = 0;
      for (std::size_t i = 0; i < n; ++i) sum += (sigmoid(z[i]) + epsilon) * x[i * width + c];
      input.push_back(sum);
    }
    if (site.base.size() > n) balance(h.streams.iterations);
  }

  static double sigmoid(double value) { return 1 / (1 + std::exp(-value)); }

  void balance(std::uint32_t iterations) {
    mix.assign(z.begin() + static_cast<std::ptrdiff_t>(2 * n), z.end());
    for (std::size_t r = 0; r < n; ++r) {
      double sum = 0;
      for (std::size_t c = 0; c < n; ++c) sum += std::exp(mix[r * n + c]);
      for (std::size_t c = 0; c < n; ++c) mix[r * n + c] = std::exp(mix[r * n + c]) / sum + epsilon;
    }
    divide(1, n);
    for (std::uint32_t i = 1; i < iterations; ++i) {
      divide(n, 1);
      divide(1, n);
    }
  }
  // Lines that start `line` apart, elements `step` apart, by their sums.
  void divide(std::size_t line, std::size_t step) {
    for (std::size_t a = 0; a < n; ++a) {
      double sum = epsilon;
      for (std::size_t b = 0; b < n; ++b) sum += mix[a * line + b * step];
      for (std::size_t b = 0; b < n; ++b) mix[a * line + b * step] /= sum;
    }
  }
  double after(std::size_t j, std::size_t c, const float* y) const {
    double sum = 2 * sigmoid(z[n + j]) * static_cast<double>(y[c]);
    for (std::size_t i = 0; i < n; ++i) sum += mix[i * n + j] * x[i * width + c];
    return sum;
  }

  double epsilon = 0;
};

}  // namespace

TEST_CASE("residual: coefficients of a worked example") {
  constexpr std::uint32_t n = 4, width = 8;
  const Hparams h = shape(n, width, 20);
  constexpr double pre[n] = {0.2689424, 0.6224604, 0.4378245, 0.5926676};
  constexpr double post[n] = {1.3583574, 0.5378829, 1.5963736, 0.8146668};
  constexpr double mix[n][n] = {{0.1267709, 0.5521209, 0.1943350, 0.1267722},
                                {0.2816277, 0.0050130, 0.4317313, 0.2816271},
                                {0.0996749, 0.4341089, 0.3665392, 0.0996760},
                                {0.4919256, 0.0087562, 0.0073936, 0.4919238}};
  // The first value of each stream alone gives these z; a lone value is normed to sqrt(32).
  std::vector<float> matrix, base;
  const double size = std::sqrt(double{n} * width);
  for (int row = 0; row < 24; ++row) {
    base.push_back(static_cast<float>((5 * row % 7 - 3) / 8.0));
    for (std::size_t i = 0; i < n * width; ++i)
      matrix.push_back(i % width == 0 ? static_cast<float>((7 * row % 11 - 5) / 4.0 / size) : 0.0F);
  }
  const Site site(matrix, base, {0.5F, 1.5F, 2.0F});
  SerialParallel serial;
  const BlockContext context{kernels(), serial, ActivationMode::f32};
  const std::vector<float> y = {0, 1, 0, 0, 0, 0, 0, 0};
  for (std::size_t lone = 0; lone < n; ++lone) {
    Residual residual(h, 1);
    std::vector<float> streams(n * width, 0.0F);
    streams[lone * width] = 1000;
    start(residual, h, streams, 1);
    residual.open(context, site.weights, 1);
    CHECK(residual.input(0)[0] == Approx(1000 * pre[lone]).epsilon(1e-6));
    residual.close(kernels(), 0, y.data());
    for (std::size_t j = 0; j < n; ++j) {
      CHECK(residual.start(0)[j * width] == Approx(1000 * mix[lone][j]).epsilon(2e-6).margin(2e-4));
      CHECK(residual.start(0)[j * width + 1] == Approx(post[j]).epsilon(1e-6));
    }
  }
}

TEST_CASE("residual: streams agree with a computation in double") {
  Random random(41);
  SerialParallel serial;
  const BlockContext context{kernels(), serial, ActivationMode::q8};
  for (const std::uint32_t n : {2u, 3u, 4u, 8u}) {
    for (const std::uint32_t width : {16u, 33u, 300u}) {
      const Hparams h = shape(n, width, n);
      const Site site = random_site(h, h.streams.mix_rows(), 3, random);
      const Site head = random_site(h, n, 1, random);
      constexpr std::size_t tokens = 3;
      const std::vector<float> streams = random.floats(tokens * n * width, -2, 2);
      const std::vector<float> y = random.floats(tokens * width, -2, 2);
      Residual residual(h, tokens);
      start(residual, h, streams, tokens);
      residual.open_head(context, head.weights, 1, 2);
      for (std::size_t t = 1; t < tokens; ++t) {
        const Exact exact(h, &streams[t * n * width], head);
        for (std::size_t c = 0; c < width; ++c)
          REQUIRE(residual.input(t)[c] == Approx(exact.input[c]).margin(2e-5));
      }
      residual.open(context, site.weights, tokens);
      for (std::size_t t = 0; t < tokens; ++t) {
        const Exact exact(h, &streams[t * n * width], site);
        for (std::size_t c = 0; c < width; ++c)
          REQUIRE(residual.input(t)[c] == Approx(exact.input[c]).margin(2e-5));
        residual.close(kernels(), t, &y[t * width]);
        for (std::size_t j = 0; j < n; ++j)
          for (std::size_t c = 0; c < width; ++c)
            REQUIRE(residual.start(t)[j * width + c] ==
                    Approx(exact.after(j, c, &y[t * width])).margin(2e-5));
      }
    }
  }
}

TEST_CASE("residual: one stream is a sum, and all streams start alike") {
  Hparams h = shape(1, 5, 0);
  SerialParallel serial;
  const BlockContext context{kernels(), serial, ActivationMode::f32};
  Residual plain(h, 2);
  std::fill_n(plain.start(1), 5, 2.0F);
  plain.spread(1);
  plain.open(context, {}, 2);
  CHECK(plain.input(1) == plain.start(1));
  const std::vector<float> y = {1, 2, 3, 4, 5};
  plain.close(kernels(), 1, y.data());
  CHECK(std::vector<float>(plain.start(1), plain.start(1) + 5) ==
        std::vector<float>{3, 4, 5, 6, 7});
  h = shape(3, 2, 1);
  Residual streams(h, 1);
  streams.start(0)[0] = 4;
  streams.start(0)[1] = 7;
  streams.spread(0);
  CHECK(std::vector<float>(streams.start(0), streams.start(0) + 6) ==
        std::vector<float>{4, 7, 4, 7, 4, 7});
}

TEST_CASE("residual: a token's bits do not depend on the batch, its parts or the ISA") {
  Random random(43);
  const Hparams h = shape(4, 48, 20);
  const Site site = random_site(h, h.streams.mix_rows(), 3, random);
  constexpr std::size_t tokens = 70;  // more than are normed together
  const std::vector<float> streams = random.floats(tokens * 4 * 48, -2, 2);
  SerialParallel serial;
  Residual all(h, tokens);
  start(all, h, streams, tokens);
  all.open({kernels(), serial, ActivationMode::q8}, site.weights, tokens);
  for (const KernelTable* table : supported_kernels()) {
    for (std::size_t t = 0; t < tokens; t += 23) {
      Residual one(h, 1);
      std::copy_n(&streams[t * 4 * 48], 4 * 48, one.start(0));
      one.open({*table, serial, ActivationMode::q8}, site.weights, 1);
      REQUIRE(std::memcmp(one.input(0), all.input(t), 48 * sizeof(float)) == 0);
    }
  }
}
