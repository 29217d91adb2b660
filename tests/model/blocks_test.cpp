// Activations and linear layers: against the kernels called directly, however rows are shared over
// threads and however wide the buffers are.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "model/blocks/gated_ffn.h"
#include "model/blocks/products.h"
#include "tests/kernels/values.h"
#include "tests/support/tiny_model.h"

using namespace millrace;
using millrace::testing::Random;
using millrace::testing::random_weights;

namespace {

// Cuts every range into pieces of the smallest allowed size and runs them last first.
class Chopper final : public Parallel {
 public:
  unsigned workers() const noexcept override { return 3; }
  void for_ranges(std::size_t count, std::size_t grain,
                  FunctionRef<void(std::size_t, std::size_t, unsigned)> body) override {
    const std::size_t pieces = (count + grain - 1) / grain;
    most_pieces = std::max(most_pieces, pieces);
    for (std::size_t i = pieces; i-- > 0;)
      body(i * grain, std::min(count, (i + 1) * grain), static_cast<unsigned>(i % 3));
  }
  std::size_t most_pieces = 0;
};

const KernelTable& kernels() { return *supported_kernels().back(); }

struct Weights {
  std::string bytes;
  Matrix matrix;
  Weights(DType type, std::size_t columns, std::size_t rows, std::uint64_t seed)
      : bytes(random_weights(type, columns, rows, seed)) {
    matrix.type = type;
    matrix.data = reinterpret_cast<const std::byte*>(bytes.data());
    matrix.row_bytes = dtype_row_bytes(type, columns);
    matrix.rows = rows;
    matrix.columns = columns;
  }
};

ActivationRows random_rows(std::size_t rows, std::size_t columns, std::size_t wide,
                           std::uint64_t seed) {
  ActivationRows x(rows, wide);
  Random random(seed);
  for (std::size_t t = 0; t < rows; ++t) {
    const std::vector<float> values = random.floats(columns);
    std::copy(values.begin(), values.end(), x.row(t));
    std::fill(x.row(t) + columns, x.row(t) + wide, 3e38F);  // must never be looked at
  }
  if (columns % 32 == 0)
    REQUIRE(x.quantize_rows(kernels(), 0, rows, columns,
                            columns % 256 == 0 ? Rounding::both : Rounding::blocks));
  return x;
}

constexpr DType types[] = {DType::f32,  DType::f16,   DType::bf16, DType::q8_0,
                           DType::q4_0, DType::mxfp4, DType::q4_k, DType::q6_k};

}  // namespace

TEST_CASE("linear: any cut of the rows gives the bits of one product") {
  SerialParallel serial;
  Chopper chopper;
  constexpr std::size_t columns = 256, rows = 5000, tokens = 3;
  for (const DType type : types) {
    const Weights weights(type, columns, rows, 7);
    const ActivationRows x = random_rows(tokens, columns, columns, 9);
    for (const ActivationMode mode : {ActivationMode::q8, ActivationMode::f32}) {
      std::vector<float> one(tokens * rows), cut(tokens * (rows + 5), 0.0F);
      linear({kernels(), serial, mode}, weights.matrix, x, 0, tokens, one.data(), rows);
      linear({kernels(), chopper, mode}, weights.matrix, x, 0, tokens, cut.data(), rows + 5);
      for (std::size_t t = 0; t < tokens; ++t)
        REQUIRE(std::memcmp(&one[t * rows], &cut[t * (rows + 5)], rows * sizeof(float)) == 0);
    }
  }
  CHECK(chopper.most_pieces > 2);
}

TEST_CASE("linear: rows of activations that are wider than the matrix count no further than it") {
  SerialParallel serial;
  constexpr std::size_t columns = 256, rows = 20, tokens = 2;
  for (const DType type : types) {
    const Weights weights(type, columns, rows, 7);
    const ActivationRows narrow = random_rows(tokens, columns, columns, 9);
    const ActivationRows wide = random_rows(tokens, columns, 1056, 9);
    for (const ActivationMode mode : {ActivationMode::q8, ActivationMode::f32}) {
      std::vector<float> expected(tokens * rows), found(tokens * rows);
      const BlockContext context{kernels(), serial, mode};
      linear(context, weights.matrix, narrow, 0, tokens, expected.data(), rows);
      linear(context, weights.matrix, wide, 0, tokens, found.data(), rows);
      REQUIRE(expected == found);
    }
  }
}

TEST_CASE("linear: many tokens give the bits of each alone, with panels, without, or too small") {
  SerialParallel serial;
  Chopper chopper;
  constexpr std::size_t columns = 768, rows = 150, tokens = 23;
  const PanelMemory panels(kernels(), columns, 3), narrow(kernels(), columns - 512, 3);
  for (const DType type : types) {
    const Weights weights(type, columns, rows, 7);
    const ActivationRows x = random_rows(tokens, columns, columns, 9);
    std::vector<float> expected(tokens * rows);
    for (std::size_t t = 0; t < tokens; ++t)
      linear({kernels(), serial, ActivationMode::q8}, weights.matrix, x, t, 1, &expected[t * rows],
             rows);
    const auto run = [&](Parallel& parallel, PanelScratch scratch) {
      std::vector<float> y(tokens * rows);
      linear({kernels(), parallel, ActivationMode::q8, scratch}, weights.matrix, x, 0, tokens,
             y.data(), rows);
      return y;
    };
    CHECK(run(serial, panels.view()) == expected);
    CHECK(run(serial, panels.view().alone(1)) == expected);
    CHECK(run(chopper, panels.view()) == expected);
    CHECK(run(serial, narrow.view()) == expected);
    CHECK(run(serial, {}) == expected);
  }
}

TEST_CASE("products: several matrices together give the bits of one after the other") {
  SerialParallel serial;
  Chopper chopper;
  constexpr std::size_t columns = 256;
  const ActivationRows x = random_rows(2, columns, 512, 9);
  std::vector<Weights> weights;
  std::size_t rows = 1;  // odd numbers, fewer and more than a unit
  for (const DType type : types) weights.emplace_back(type, columns, rows += 77, 3);
  for (const ActivationMode mode : {ActivationMode::q8, ActivationMode::f32}) {
    std::vector<std::vector<float>> expected, found;
    std::vector<Product> products;
    for (const Weights& each : weights) {
      expected.emplace_back(each.matrix.rows);
      const std::size_t row = expected.size() % 2;
      // Two rows of activations, so that linear() goes its own way.
      std::vector<float> both(2 * each.matrix.rows);
      linear({kernels(), serial, mode}, each.matrix, x, 0, 2, both.data(), each.matrix.rows);
      std::copy_n(&both[row * each.matrix.rows], each.matrix.rows, expected.back().begin());
    }
    for (Parallel* parallel : {static_cast<Parallel*>(&serial), static_cast<Parallel*>(&chopper)}) {
      found.clear();
      products.clear();
      for (const Weights& each : weights) found.emplace_back(each.matrix.rows);
      for (std::size_t i = 0; i < weights.size(); ++i)
        products.push_back({weights[i].matrix, &x, (i + 1) % 2, found[i].data()});
      multiply({kernels(), *parallel, mode}, products);
      CHECK(found == expected);
    }
  }
  CHECK(chopper.most_pieces > weights.size());
}

TEST_CASE("linear: the router's product takes unrounded activations in any mode") {
  SerialParallel serial;
  const Weights weights(DType::q8_0, 64, 10, 1);
  const ActivationRows x = random_rows(1, 64, 64, 2);
  std::vector<float> rounded(10), exact(10), decoded(10);
  linear({kernels(), serial, ActivationMode::q8}, weights.matrix, x, 0, 1, rounded.data(), 10);
  linear({kernels(), serial, ActivationMode::f32}, weights.matrix, x, 0, 1, decoded.data(), 10);
  linear_f32({kernels(), serial, ActivationMode::q8}, weights.matrix, x, 0, 1, exact.data(), 10);
  CHECK(exact == decoded);
  CHECK(exact != rounded);
}

TEST_CASE("gated ffn: it is Wd·(silu(Wg·x) * (Wu·x)) with biases, in a buffer of any width") {
  SerialParallel serial;
  Chopper chopper;
  constexpr std::size_t width = 64, inner = 32, tokens = 11;
  const Weights gate(DType::f32, width, inner, 1), up(DType::f32, width, inner, 2),
      down(DType::f32, inner, width, 3);
  Random random(4);
  const std::vector<float> gate_bias = random.floats(inner), up_bias = random.floats(inner),
                           down_bias = random.floats(width);
  const GatedFfn ffn{.gate = gate.matrix,
                     .up = up.matrix,
                     .down = down.matrix,
                     .gate_bias = gate_bias.data(),
                     .up_bias = up_bias.data(),
                     .down_bias = down_bias.data()};
  const ActivationRows x = random_rows(tokens, width, width, 5);
  const auto run = [&](Parallel& parallel, ActivationMode mode, std::size_t hidden_columns) {
    ActivationRows hidden(tokens + 2, hidden_columns);
    std::vector<float> up_buffer(tokens * inner), y(tokens * width);
    const BlockContext context{kernels(), parallel, mode};
    REQUIRE(ffn_gate_up(context, ffn, DType::f32, x, 0, tokens, hidden, 2, up_buffer.data()));
    ffn_down(context, ffn, hidden, 2, tokens, y.data(), width);
    return y;
  };
  const std::vector<float> expected = run(serial, ActivationMode::f32, inner);
  CHECK(run(chopper, ActivationMode::f32, inner) == expected);
  CHECK(run(serial, ActivationMode::f32, 160) == expected);

  const auto element = [](const Weights& w, std::size_t row, std::size_t column) {
    float value = 0;
    std::memcpy(&value, w.bytes.data() + (row * w.matrix.columns + column) * 4, 4);
    return double{value};
  };
  for (std::size_t t = 0; t < tokens; ++t) {
    std::vector<double> hidden(inner);
    for (std::size_t i = 0; i < inner; ++i) {
      double g = gate_bias[i], u = up_bias[i];
      for (std::size_t c = 0; c < width; ++c) {
        g += element(gate, i, c) * x.row(t)[c];
        u += element(up, i, c) * x.row(t)[c];
      }
      hidden[i] = g / (1 + std::exp(-g)) * u;
    }
    for (std::size_t r = 0; r < width; ++r) {
      double y = down_bias[r];
      for (std::size_t i = 0; i < inner; ++i) y += element(down, r, i) * hidden[i];
      REQUIRE(expected[t * width + r] == Approx(y).margin(1e-5));
    }
  }
}

TEST_CASE("gated ffn: rounded hidden rows are the same bits in a buffer of any width") {
  SerialParallel serial;
  Chopper chopper;
  constexpr std::size_t width = 64, inner = 96, tokens = 9;
  const Weights gate(DType::q8_0, width, inner, 1), up(DType::q4_0, width, inner, 2),
      down(DType::mxfp4, inner, width, 3);
  const GatedFfn ffn{.gate = gate.matrix, .up = up.matrix, .down = down.matrix};
  const ActivationRows x = random_rows(tokens, width, width, 5);
  const auto run = [&](Parallel& parallel, std::size_t hidden_columns) {
    ActivationRows hidden(tokens, hidden_columns);
    std::vector<float> up_buffer(tokens * inner), y(tokens * width);
    const BlockContext context{kernels(), parallel, ActivationMode::q8};
    REQUIRE(ffn_gate_up(context, ffn, down.matrix.type, x, 0, tokens, hidden, 0, up_buffer.data()));
    ffn_down(context, ffn, hidden, 0, tokens, y.data(), width);
    return y;
  };
  const std::vector<float> expected = run(serial, inner);
  CHECK(run(serial, 1024) == expected);
  CHECK(run(chopper, 100) == expected);
}

TEST_CASE("gated ffn: several at once give the bits of each alone") {
  SerialParallel serial;
  Chopper chopper;
  constexpr std::size_t width = 64, inner = 96, count = 3;
  std::vector<Weights> weights;
  for (std::uint64_t i = 0; i < count; ++i) {
    weights.emplace_back(DType::q8_0, width, inner, 10 * i + 1);
    weights.emplace_back(DType::q4_0, width, inner, 10 * i + 2);
    weights.emplace_back(DType::mxfp4, inner, width, 10 * i + 3);
  }
  const std::vector<float> bias = Random(4).floats(inner);
  ActivationRows x = random_rows(2, width, width, 5);
  ActivationRows hidden(count + 1, 100);
  const auto ffn = [&](std::size_t i) {
    GatedFfn made{.gate = weights[3 * i].matrix,
                  .up = weights[3 * i + 1].matrix,
                  .down = weights[3 * i + 2].matrix};
    made.down_scale = static_cast<float>(i + 1);
    if (i == 1) made.gate_bias = made.up_bias = bias.data();
    return made;
  };
  std::vector<std::vector<float>> expected(count, std::vector<float>(width));
  std::vector<float> up(count * inner);
  for (std::size_t i = 0; i < count; ++i) {
    const BlockContext context{kernels(), serial, ActivationMode::q8};
    REQUIRE(ffn_gate_up(context, ffn(i), DType::mxfp4, x, 1, 1, hidden, 0, up.data()));
    ffn_down(context, ffn(i), hidden, 0, 1, expected[i].data(), width);
  }
  for (Parallel* parallel : {static_cast<Parallel*>(&serial), static_cast<Parallel*>(&chopper)}) {
    std::vector<std::vector<float>> found(count, std::vector<float>(width));
    std::vector<FfnRow> rows;
    for (std::size_t i = 0; i < count; ++i)
      rows.push_back({ffn(i), &x, 1, &hidden, count - i, &up[i * inner], found[i].data()});
    const BlockContext context{kernels(), *parallel, ActivationMode::q8};
    CHECK(run_ffn_rows(context, rows));
    CHECK(found == expected);
    rows[1].ffn.gate_scale = std::numeric_limits<float>::infinity();
    CHECK_FALSE(run_ffn_rows(context, rows));
  }
}

TEST_CASE("activations: a NaN or an infinity is noticed when rows are rounded") {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    ActivationRows x(2, 64);
    x.row(1)[63] = bad;
    CHECK(x.quantize_rows(kernels(), 0, 1, 64, Rounding::blocks));
    CHECK_FALSE(x.quantize_rows(kernels(), 0, 2, 64, Rounding::blocks));
    CHECK(x.quantize_rows(kernels(), 1, 1, 32, Rounding::blocks));
  }
}

TEST_CASE("activations: a copied row is the same row") {
  const ActivationRows from = random_rows(3, 256, 256, 1);
  ActivationRows to(2, 256);
  to.copy_floats(1, from, 2);
  to.copy_rounded(1, from, 2, Rounding::both);
  CHECK(std::memcmp(to.row(1), from.row(2), 256 * sizeof(float)) == 0);
  const Q8Batch a = from.q8(2), b = to.q8(1);
  CHECK(std::memcmp(a.q, b.q, 256) == 0);
  CHECK(std::memcmp(a.scale, b.scale, 8 * sizeof(float)) == 0);
  CHECK(std::memcmp(a.sum, b.sum, 8 * sizeof(std::int32_t)) == 0);
  const Q8SuperBatch c = from.q8_super(2), d = to.q8_super(1);
  CHECK(std::memcmp(c.q, d.q, 256) == 0);
  CHECK(c.scale[0] == d.scale[0]);
  CHECK(std::memcmp(c.sum, d.sum, 16 * sizeof(std::int16_t)) == 0);
}

TEST_CASE("activations: one row holds both twins, and only those asked for are written") {
  ActivationRows x = random_rows(2, 512, 512, 1);
  const std::vector<std::int8_t> before(x.q8(1).q, x.q8(1).q + 512);
  x.row(1)[3] = 100.0F;
  CHECK(x.quantize_rows(kernels(), 1, 1, 512, Rounding::none));
  CHECK(x.quantize_rows(kernels(), 1, 1, 512, Rounding::supers));
  CHECK(x.q8_super(1).q[3] == 127);
  CHECK(std::memcmp(x.q8(1).q, before.data(), 512) == 0);
  CHECK(x.quantize_rows(kernels(), 1, 1, 512, Rounding::blocks));
  CHECK(x.q8(1).q[3] == 127);
}
