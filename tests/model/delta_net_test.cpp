// The gated delta net as a block: its recurrence against float64, and the same bits however tokens
// are batched, sequences mixed and ranges cut.
#include "model/blocks/delta_net.h"

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

constexpr std::uint32_t width = 64, tokens_max = 12;
constexpr DeltaSizes sizes = {
    .key_heads = 2, .value_heads = 6, .key_dim = 20, .value_dim = 16, .taps = 4};

const KernelTable& kernels() { return *supported_kernels().back(); }

// Cuts every range into the smallest pieces and runs them last first.
class Chopper final : public Parallel {
 public:
  unsigned workers() const noexcept override { return 3; }
  void for_ranges(std::size_t count, std::size_t grain,
                  FunctionRef<void(std::size_t, std::size_t, unsigned)> body) override {
    const std::size_t pieces = (count + grain - 1) / grain;
    for (std::size_t i = pieces; i-- > 0;)
      body(i * grain, std::min(count, (i + 1) * grain), static_cast<unsigned>(i % 3));
  }
};

struct Weights {
  std::vector<std::vector<float>> owners;
  LayerWeights layer;

  explicit Weights(DeltaNets heads) {
    Random random(17);
    const auto matrix = [&](MatrixRole role, std::size_t columns, std::size_t rows) {
      owners.push_back(random.floats(columns * rows, -0.2, 0.2));
      Matrix& made = layer.matrices[static_cast<std::size_t>(role)];
      made.data = reinterpret_cast<const std::byte*>(owners.back().data());
      made.row_bytes = columns * sizeof(float);
      made.rows = rows;
      made.columns = columns;
    };
    const auto vector = [&](VectorRole role, std::size_t count, double low, double high) {
      owners.push_back(random.floats(count, low, high));
      layer.vectors[static_cast<std::size_t>(role)] = owners.back().data();
    };
    owners.reserve(16);
    matrix(MatrixRole::delta_qkv, width, sizes.channels());
    matrix(MatrixRole::delta_gate, width, sizes.values());
    if (heads == DeltaNets::grouped_heads) {
      matrix(MatrixRole::delta_ba, width, 2 * sizes.value_heads);
    } else {
      matrix(MatrixRole::delta_beta, width, sizes.value_heads);
      matrix(MatrixRole::delta_alpha, width, sizes.value_heads);
    }
    matrix(MatrixRole::attn_output, sizes.values(), width);
    vector(VectorRole::delta_conv, sizes.taps * sizes.channels(), -1, 1);
    vector(VectorRole::delta_dt, sizes.value_heads, -1, 1);
    vector(VectorRole::delta_decay, sizes.value_heads, -2, -0.1);
    vector(VectorRole::delta_norm, sizes.value_dim, 0.5, 1.5);
  }
  const float* matrix(MatrixRole role) const {
    return reinterpret_cast<const float*>(layer.matrix(role).data);
  }
};

Hparams hparams() {
  Hparams h;
  h.layers = 2;
  h.attention_interval = 2;  // layer 0 is the delta net
  h.heads = h.kv_heads = {1, 1};
  h.head_dim = h.value_dim = 8;
  h.delta = sizes;
  return h;
}

SequenceState new_state() {
  auto state = SequenceState::create(hparams(), 64, KvType::f32, tokens_max);
  REQUIRE(state.has_value());
  return *std::move(state);
}

// The layer for some tokens, each with its own input row.
class Layer {
 public:
  explicit Layer(DeltaNets heads, Parallel& parallel)
      : weights_(heads),
        shape_{.sizes = sizes, .heads = heads, .rms_eps = 1e-6F},
        scratch_(shape_, tokens_max, parallel.workers()),
        context_{kernels(), parallel, ActivationMode::f32} {}

  std::vector<float> run(const std::vector<TokenPlace>& places,
                         const std::vector<std::vector<float>>& inputs) {
    ActivationRows rows(places.size(), width);
    for (std::size_t t = 0; t < places.size(); ++t)
      std::copy(inputs[t].begin(), inputs[t].end(), rows.row(t));
    std::vector<float> out(places.size() * width);
    REQUIRE(delta_net(context_, shape_, weights_.layer, 0, places, rows, scratch_, out.data()));
    return out;
  }
  const Weights& weights() const { return weights_; }

 private:
  Weights weights_;
  DeltaShape shape_;
  DeltaScratch scratch_;
  BlockContext context_;
};

std::vector<std::vector<float>> some_inputs(std::size_t count, std::uint64_t seed) {
  Random random(seed);
  std::vector<std::vector<float>> inputs;
  for (std::size_t t = 0; t < count; ++t) inputs.push_back(random.floats(width));
  return inputs;
}

// The recurrence as it is published, in float64.
class Exact {
 public:
  Exact(const Weights& weights, DeltaNets heads)
      : weights_(weights),
        grouped_(heads == DeltaNets::grouped_heads),
        state_(std::size_t{sizes.value_heads} * sizes.key_dim * sizes.value_dim, 0.0) {}

  std::vector<double> step(const std::vector<float>& x) {
    history_.push_back(product(MatrixRole::delta_qkv, x));
    const std::vector<double> turned = convolved();
    const std::vector<double> gate = product(MatrixRole::delta_gate, x);
    std::vector<double> gated(sizes.values());
    for (std::size_t head = 0; head < sizes.value_heads; ++head) {
      const auto [b, a] = strengths(head, x);
      const double beta = 1 / (1 + std::exp(-b));
      const double dt = double{weights_.layer.vector(VectorRole::delta_dt)[head]};
      const double decay = std::exp(double{weights_.layer.vector(VectorRole::delta_decay)[head]} *
                                    std::log1p(std::exp(a + dt)));
      const std::vector<double> o = head_output(head, turned, beta, decay);
      double squares = 0;
      for (const double value : o) squares += value * value;
      const double factor = 1 / std::sqrt(squares / sizes.value_dim + 1e-6);
      for (std::size_t j = 0; j < sizes.value_dim; ++j) {
        const double z = gate[head * sizes.value_dim + j];
        gated[head * sizes.value_dim + j] =
            o[j] * factor * double{weights_.layer.vector(VectorRole::delta_norm)[j]} * z /
            (1 + std::exp(-z));
      }
    }
    return product(MatrixRole::attn_output, gated);
  }

 private:
  template <class Row>
  std::vector<double> product(MatrixRole role, const Row& x) const {
    const Matrix& matrix = weights_.layer.matrix(role);
    std::vector<double> y(matrix.rows, 0.0);
    for (std::size_t r = 0; r < matrix.rows; ++r)
      for (std::size_t i = 0; i < matrix.columns; ++i)
        y[r] += double{weights_.matrix(role)[r * matrix.columns + i]} * static_cast<double>(x[i]);
    return y;
  }

  std::vector<double> convolved() const {
    std::vector<double> y(sizes.channels(), 0.0);
    const float* const taps = weights_.layer.vector(VectorRole::delta_conv);
    for (std::size_t c = 0; c < y.size(); ++c) {
      for (std::size_t back = 0; back < std::min<std::size_t>(sizes.taps, history_.size()); ++back)
        y[c] += double{taps[(sizes.taps - 1 - back) * y.size() + c]} *
                history_[history_.size() - 1 - back][c];
      y[c] /= 1 + std::exp(-y[c]);
    }
    return y;
  }

  std::pair<double, double> strengths(std::size_t head, const std::vector<float>& x) const {
    if (!grouped_)
      return {product(MatrixRole::delta_beta, x)[head], product(MatrixRole::delta_alpha, x)[head]};
    const std::size_t group = sizes.value_heads / sizes.key_heads;
    const std::vector<double> both = product(MatrixRole::delta_ba, x);
    const std::size_t first = head / group * 2 * group + head % group;
    return {both[first], both[first + group]};
  }

  std::vector<double> head_output(std::size_t head, const std::vector<double>& turned, double beta,
                                  double decay) {
    const std::size_t key_head =
        grouped_ ? head / (sizes.value_heads / sizes.key_heads) : head % sizes.key_heads;
    const auto unit = [&](std::size_t first) {
      std::vector<double> row(turned.begin() + static_cast<std::ptrdiff_t>(first),
                              turned.begin() + static_cast<std::ptrdiff_t>(first + sizes.key_dim));
      double squares = 0;
      for (const double value : row) squares += value * value;
      for (double& value : row) value /= std::sqrt(squares);
      return row;
    };
    const std::vector<double> q = unit(key_head * sizes.key_dim);
    const std::vector<double> k = unit(sizes.keys() + key_head * sizes.key_dim);
    const double* const v = &turned[2 * std::size_t{sizes.keys()} + head * sizes.value_dim];
    double* const state = &state_[head * sizes.key_dim * sizes.value_dim];
    std::vector<double> out(sizes.value_dim, 0.0);
    for (std::size_t j = 0; j < sizes.value_dim; ++j) {
      double found = 0;
      for (std::size_t i = 0; i < sizes.key_dim; ++i)
        found += k[i] * (state[i * sizes.value_dim + j] *= decay);
      for (std::size_t i = 0; i < sizes.key_dim; ++i) {
        state[i * sizes.value_dim + j] += k[i] * beta * (v[j] - found);
        out[j] += q[i] * state[i * sizes.value_dim + j] / std::sqrt(sizes.key_dim);
      }
    }
    return out;
  }

  const Weights& weights_;
  bool grouped_;
  std::vector<double> state_;
  std::vector<std::vector<double>> history_;
};

}  // namespace

TEST_CASE("delta net: its output is the recurrence's in float64, with heads grouped or tiled") {
  SerialParallel serial;
  for (const DeltaNets heads : {DeltaNets::grouped_heads, DeltaNets::tiled_heads}) {
    Layer layer(heads, serial);
    Exact exact(layer.weights(), heads);
    SequenceState state = new_state();
    double worst = 0, largest = 0;
    std::uint32_t position = 0;
    for (const auto& input : some_inputs(40, 3)) {
      const std::vector<float> found = layer.run({{0, position++, &state}}, {input});
      const std::vector<double> wanted = exact.step(input);
      for (std::size_t i = 0; i < width; ++i) {
        worst = std::max(worst, std::fabs(double{found[i]} - wanted[i]));
        largest = std::max(largest, std::fabs(wanted[i]));
      }
    }
    CHECK(largest > 0.3);
    CHECK(worst < 2e-5 * largest);
  }
}

TEST_CASE("delta net: the same bits in one batch, token by token, cut anyhow, and beside another") {
  SerialParallel serial;
  Chopper chopper;
  const auto inputs = some_inputs(11, 5);
  const auto others = some_inputs(11, 6);
  for (const DeltaNets heads : {DeltaNets::grouped_heads, DeltaNets::tiled_heads}) {
    Layer alone(heads, serial);
    SequenceState state = new_state();
    std::vector<float> expected;
    for (std::uint32_t t = 0; t < 11; ++t) {
      const std::vector<float> row = alone.run({{0, t, &state}}, {inputs[t]});
      expected.insert(expected.end(), row.begin(), row.end());
    }
    Layer cut(heads, chopper);
    for (const std::size_t part : {1u, 2u, 3u, 5u, 11u}) {
      SequenceState again = new_state();
      std::vector<float> found;
      for (std::size_t first = 0; first < 11; first += part) {
        std::vector<TokenPlace> places;
        std::vector<std::vector<float>> rows;
        for (std::size_t t = first; t < std::min<std::size_t>(11, first + part); ++t) {
          places.push_back({0, static_cast<std::uint32_t>(t), &again});
          rows.push_back(inputs[t]);
        }
        const std::vector<float> out = cut.run(places, rows);
        found.insert(found.end(), out.begin(), out.end());
      }
      INFO("parts of " << part);
      CHECK(found == expected);
    }
    // Two sequences in one batch, their tokens interleaved, in two steps.
    SequenceState first = new_state();
    SequenceState second = new_state();
    std::vector<float> found;
    for (const std::uint32_t begin : {0u, 5u}) {
      std::vector<TokenPlace> places;
      std::vector<std::vector<float>> rows;
      for (std::uint32_t t = begin; t < begin + 5; ++t) {
        places.push_back({0, t, &first});
        rows.push_back(inputs[t]);
        places.push_back({0, t, &second});
        rows.push_back(others[t]);
      }
      const std::vector<float> out = cut.run(places, rows);
      for (std::size_t t = 0; t < 5; ++t)
        found.insert(found.end(), out.begin() + static_cast<std::ptrdiff_t>(2 * t * width),
                     out.begin() + static_cast<std::ptrdiff_t>((2 * t + 1) * width));
    }
    CHECK(std::memcmp(found.data(), expected.data(), found.size() * sizeof(float)) == 0);
    // From the beginning again: nothing of the past is left.
    const std::vector<float> anew = cut.run({{0, 0, &first}}, {inputs[0]});
    CHECK(std::memcmp(anew.data(), expected.data(), anew.size() * sizeof(float)) == 0);
  }
}
