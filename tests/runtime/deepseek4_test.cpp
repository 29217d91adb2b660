// deepseek4 in sizes that no published model has: the whole forward pass against one in double, the
// experts that follow from a token's id, and sessions that go back.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/tiny_deepseek4.h"
#include "tests/support/tiny_engine.h"

using namespace millrace;
using namespace millrace::test;
using namespace millrace::testing;

namespace {

using Shape = TinyDeepseek4;
using Vec = std::vector<double>;

constexpr double epsilon = 1e-6;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// What a layer remembers of the positions before.
struct History {
  std::vector<Vec> rows;                  // all positions; the window is cut at use
  std::vector<Vec> kv, gate, ikv, igate;  // of the compressors
  std::vector<Vec> pooled, index;
};

// The forward pass by the formulas in model/blocks, position by position, in double.
class Reference {
 public:
  explicit Reference(const Shape& shape) : shape_(shape), history_(Shape::layers) {
    TinyModel model = shape.build();
    for (const BuiltTensor& tensor : model.tensors()) {
      std::vector<float> floats(tensor.data.size() / sizeof(float));
      std::memcpy(floats.data(), tensor.data.data(), floats.size() * sizeof(float));
      tensors_[tensor.name] = Vec(floats.begin(), floats.end());
    }
  }

  // Logits of the next position.
  Vec step(TokenId id) {
    token_ = static_cast<std::uint32_t>(id);
    const Vec& table = tensors_.at("token_embd.weight");
    Vec row(table.begin() + id * Shape::width, table.begin() + (id + 1) * Shape::width);
    x_.assign(Shape::streams, row);
    for (layer_ = 0; layer_ < Shape::layers; ++layer_) {
      sublayer("hc_attn_", "attn_norm", [&](const Vec& normed) { return attention(normed); });
      sublayer("hc_ffn_", "ffn_norm", [&](const Vec& normed) { return experts(normed); });
    }
    ++position_;
    const Vec z = mixes("output_hc_");
    Vec h(Shape::width, 0.0);
    for (std::size_t i = 0; i < Shape::streams; ++i) {
      const double w = sigmoid(tensors_.at("output_hc_scale.weight")[0] * z[i] +
                               tensors_.at("output_hc_base.weight")[i]) +
                       epsilon;
      for (std::size_t c = 0; c < Shape::width; ++c) h[c] += w * x_[i][c];
    }
    return product(tensors_.at("output.weight"), norm(h, tensors_.at("output_norm.weight")));
  }

 private:
  const Vec& own(const std::string& name) const {
    return tensors_.at("blk." + std::to_string(layer_) + "." + name + ".weight");
  }
  static Vec product(const Vec& matrix, const Vec& x) {
    Vec y(matrix.size() / x.size(), 0.0);
    for (std::size_t r = 0; r < y.size(); ++r)
      for (std::size_t i = 0; i < x.size(); ++i) y[r] += matrix[r * x.size() + i] * x[i];
    return y;
  }
  static Vec norm(Vec x, const Vec& weight) {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double factor = 1 / std::sqrt(squares / static_cast<double>(x.size()) + epsilon);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= factor * (weight.empty() ? 1 : weight[i]);
    return x;
  }
  Vec mixes(const std::string& base) const {
    Vec all;
    for (const Vec& stream : x_) all.insert(all.end(), stream.begin(), stream.end());
    const std::string prefix =
        base == "output_hc_" ? base : "blk." + std::to_string(layer_) + "." + base;
    return product(tensors_.at(prefix + "fn.weight"), norm(all, {}));
  }

  template <class Body>
  void sublayer(const std::string& base, const std::string& norm_name, Body body) {
    constexpr std::size_t n = Shape::streams;
    Vec z = mixes(base);
    for (std::size_t i = 0; i < z.size(); ++i)
      z[i] = own(base + "scale")[std::min<std::size_t>(i / n, 2)] * z[i] + own(base + "base")[i];
    Vec mix(n * n), input(Shape::width, 0.0);
    for (std::size_t r = 0; r < n; ++r) {
      double sum = 0;
      for (std::size_t c = 0; c < n; ++c) sum += std::exp(z[2 * n + r * n + c]);
      for (std::size_t c = 0; c < n; ++c)
        mix[r * n + c] = std::exp(z[2 * n + r * n + c]) / sum + epsilon;
    }
    for (std::uint32_t i = 0; i < 2 * Shape::iterations - 1; ++i) {  // columns, rows, columns, …
      for (std::size_t a = 0; a < n; ++a) {
        const auto at = [&](std::size_t b) { return i % 2 == 0 ? b * n + a : a * n + b; };
        double sum = epsilon;
        for (std::size_t b = 0; b < n; ++b) sum += mix[at(b)];
        for (std::size_t b = 0; b < n; ++b) mix[at(b)] /= sum;
      }
    }
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t c = 0; c < Shape::width; ++c)
        input[c] += (sigmoid(z[i]) + epsilon) * x_[i][c];
    const Vec y = body(norm(input, own(norm_name)));
    std::vector<Vec> next(n, Vec(Shape::width));
    for (std::size_t j = 0; j < n; ++j)
      for (std::size_t c = 0; c < Shape::width; ++c) {
        next[j][c] = 2 * sigmoid(z[n + j]) * y[c];
        for (std::size_t i = 0; i < n; ++i) next[j][c] += mix[i * n + j] * x_[i][c];
      }
    x_ = next;
  }

  // The last values of x, turned by `sign` times the angle of a position.
  void rotate(Vec& x, std::size_t dim, std::size_t position, double sign = 1) const {
    const double base = shape_.ratios[layer_] == 0 ? 10000 : 160000;
    const auto border = [&](double turns) {
      return Shape::rotary * std::log(65536 / (2 * M_PI * turns)) / (2 * std::log(base));
    };
    const double low = std::max(0.0, std::floor(border(32)));
    const double high = std::min(Shape::rotary - 1.0, std::ceil(border(1)));
    for (std::size_t first = dim - Shape::rotary; first < x.size(); first += dim)
      for (std::size_t i = 0; i < Shape::rotary / 2; ++i) {
        double theta = std::pow(base, -2.0 * static_cast<double>(i) / Shape::rotary);
        const double ramp = (static_cast<double>(i) - low) / std::max(0.001, high - low);
        const double keep = 1 - std::clamp(ramp, 0.0, 1.0);
        if (shape_.ratios[layer_] != 0) theta *= (1 - keep) / 16 + keep;
        const double angle = sign * static_cast<double>(position) * theta;
        const double u = x[first + 2 * i], v = x[first + 2 * i + 1];
        x[first + 2 * i] = u * std::cos(angle) - v * std::sin(angle);
        x[first + 2 * i + 1] = u * std::sin(angle) + v * std::cos(angle);
      }
  }

  void compress(const std::string& base, const Vec& normed, std::size_t dim,
                std::vector<Vec>& values, std::vector<Vec>& scores, std::vector<Vec>& rows) {
    const std::size_t ratio = shape_.ratios[layer_];
    const std::size_t halves = ratio == 4 ? 2 : 1;
    values.push_back(product(own(base + "kv"), normed));
    scores.push_back(product(own(base + "gate"), normed));
    const std::size_t wide = halves * dim;
    for (std::size_t i = 0; i < wide; ++i)
      scores.back()[i] += own(base + "ape")[position_ % ratio * wide + i];
    if ((position_ + 1) % ratio != 0) return;
    Vec row(dim);
    for (std::size_t j = 0; j < dim; ++j) {
      double weights = 0, sum = 0;
      const std::size_t items = std::min(position_ + 1, ratio * halves);
      for (std::size_t t = position_ + 1 - items; t <= position_; ++t) {
        const std::size_t at = t + ratio > position_ ? (halves - 1) * dim + j : j;
        weights += std::exp(scores[t][at]);
        sum += std::exp(scores[t][at]) * values[t][at];
      }
      row[j] = sum / weights;
    }
    row = norm(row, own(base + "norm"));
    rotate(row, dim, position_ + 1 - ratio);
    rows.push_back(row);
  }

  // Rows that the position looks at, behind those of the window.
  std::vector<Vec> pooled_rows(const Vec& normed, const Vec& latent, const History& history) {
    std::vector<Vec> rows = history.pooled;
    if (shape_.ratios[layer_] != 4 || rows.size() <= Shape::index_top_k) return rows;
    Vec q = product(own("indexer.attn_q_b"), latent);
    rotate(q, Shape::index_dim, position_);
    const Vec weights = product(own("indexer.proj"), normed);
    std::vector<std::pair<double, std::size_t>> order;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      double score = 0;
      for (std::size_t h = 0; h < Shape::index_heads; ++h) {
        double dot = 0;
        for (std::size_t i = 0; i < Shape::index_dim; ++i)
          dot += q[h * Shape::index_dim + i] * history.index[r][i];
        score += weights[h] * std::max(0.0, dot);
      }
      order.emplace_back(-score, r);
    }
    std::sort(order.begin(), order.end());
    std::vector<Vec> chosen;
    for (std::size_t k = 0; k < Shape::index_top_k; ++k) chosen.push_back(rows[order[k].second]);
    return chosen;
  }

  Vec attention(const Vec& normed) {
    History& history = history_[layer_];
    const Vec latent = norm(product(own("attn_q_a"), normed), own("attn_q_a_norm"));
    Vec row = norm(product(own("attn_kv"), normed), own("attn_kv_a_norm"));
    rotate(row, Shape::head_dim, position_);
    history.rows.push_back(row);
    if (shape_.ratios[layer_] > 0)
      compress("attn_compressor_", normed, Shape::head_dim, history.kv, history.gate,
               history.pooled);
    if (shape_.ratios[layer_] == 4)
      compress("indexer_compressor_", normed, Shape::index_dim, history.ikv, history.igate,
               history.index);
    std::vector<Vec> seen = pooled_rows(normed, latent, history);
    const std::size_t window = std::min<std::size_t>(Shape::window, history.rows.size());
    seen.insert(seen.end(), history.rows.end() - static_cast<std::ptrdiff_t>(window),
                history.rows.end());
    Vec q = product(own("attn_q_b"), latent), out;
    for (std::size_t h = 0; h < Shape::heads; ++h) {
      const auto at = q.begin() + static_cast<std::ptrdiff_t>(h * Shape::head_dim);
      Vec head = norm(Vec(at, at + Shape::head_dim), {});
      rotate(head, Shape::head_dim, position_);
      double sum = std::exp(own("attn_sinks")[h]);
      Vec o(Shape::head_dim, 0.0);
      for (const Vec& key : seen) {
        double score = 0;
        for (std::size_t i = 0; i < key.size(); ++i) score += head[i] * key[i];
        const double weight = std::exp(score / std::sqrt(double{Shape::head_dim}));
        sum += weight;
        for (std::size_t i = 0; i < key.size(); ++i) o[i] += weight * key[i];
      }
      for (double& value : o) value /= sum;
      rotate(o, Shape::head_dim, position_, -1);
      out.insert(out.end(), o.begin(), o.end());
    }
    Vec low;
    const std::size_t columns = out.size() / Shape::groups;
    for (std::size_t g = 0; g < Shape::groups; ++g) {
      const Vec part(out.begin() + static_cast<std::ptrdiff_t>(g * columns),
                     out.begin() + static_cast<std::ptrdiff_t>((g + 1) * columns));
      const Vec all = product(own("attn_output_a"), part);
      low.insert(low.end(), all.begin() + static_cast<std::ptrdiff_t>(g * Shape::rank),
                 all.begin() + static_cast<std::ptrdiff_t>((g + 1) * Shape::rank));
    }
    return product(own("attn_output_b"), low);
  }

  Vec ffn(const Vec& normed, const std::string& kind, std::size_t expert, double limit) const {
    const std::size_t part = std::size_t{Shape::width} * Shape::inner;
    const auto slice = [&](const char* name) {
      const Vec& all = own(std::string("ffn_") + name + kind);
      const auto at = all.begin() + static_cast<std::ptrdiff_t>(expert * part);
      return Vec(at, at + static_cast<std::ptrdiff_t>(part));
    };
    Vec gate = product(slice("gate"), normed);
    const Vec up = product(slice("up"), normed);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      const double g = std::min(gate[i], limit);
      gate[i] = g * sigmoid(g) * std::clamp(up[i], -limit, limit);
    }
    return product(slice("down"), gate);
  }

  Vec experts(const Vec& normed) {
    Vec scores = product(own("ffn_gate_inp"), normed);
    for (double& score : scores) score = std::sqrt(std::log1p(std::exp(score)));
    std::vector<std::size_t> chosen;
    if (layer_ < Shape::hashed) {
      for (std::uint32_t k = 0; k < Shape::used; ++k)
        chosen.push_back(Shape::hash_expert(token_, k));
    } else {
      const Vec& bias = tensors_.at("blk." + std::to_string(layer_) + ".exp_probs_b.bias");
      std::vector<std::pair<double, std::size_t>> order;
      for (std::size_t e = 0; e < scores.size(); ++e) order.emplace_back(-(scores[e] + bias[e]), e);
      std::sort(order.begin(), order.end());
      for (std::size_t k = 0; k < Shape::used; ++k) chosen.push_back(order[k].second);
    }
    double sum = 0;
    for (const std::size_t e : chosen) sum += scores[e];
    Vec y = ffn(normed, "_shexp", 0, static_cast<double>(0.04F));
    for (const std::size_t e : chosen) {
      const Vec part = ffn(normed, "_exps", e, static_cast<double>(0.05F));
      for (std::size_t c = 0; c < y.size(); ++c) y[c] += 1.5 * scores[e] / sum * part[c];
    }
    return y;
  }

  const Shape shape_;
  std::map<std::string, Vec> tensors_;
  std::vector<History> history_;
  std::vector<Vec> x_;
  std::size_t position_ = 0, layer_ = 0;
  std::uint32_t token_ = 0;
};

EngineConfig config_of(const std::string& path) {
  EngineConfig config = tiny_config(path);
  config.activations = ActivationMode::f32;
  config.kv = KvType::f32;
  return config;
}

std::vector<float> process(TestEngine& made, Session& session, std::span<const TokenId> ids) {
  std::vector<float> rows;
  const Status done =
      made.engine->process(session, ids, LogitsWanted::all, [&](std::size_t, const float* row) {
        rows.insert(rows.end(), row, row + Shape::vocabulary);
      });
  if (!done) FAIL(done.error().what);
  return rows;
}

}  // namespace

TEST_CASE("deepseek4: logits are those of a forward pass in double") {
  const TempFolder folder;
  const Shape shape;
  const std::string path = folder.write("m.gguf", shape.build().build());
  const auto ids = some_ids(60, Shape::vocabulary);
  const std::vector<float> ours = logits_of(config_of(path), ids);
  Reference reference(shape);
  double squares = 0, errors = 0;
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const Vec exact = reference.step(ids[t]);
    for (std::size_t i = 0; i < exact.size(); ++i) {
      const double difference = static_cast<double>(ours[t * exact.size() + i]) - exact[i];
      squares += exact[i] * exact[i];
      errors += difference * difference;
    }
  }
  INFO("relative error " << std::sqrt(errors / squares));
  CHECK(std::sqrt(errors / squares) < 2e-6);
}

TEST_CASE("deepseek4: one result for every part, number of threads and type of cache") {
  const TempFolder folder;
  const std::string path = folder.write("m.gguf", Shape().build().build());
  const auto ids = some_ids(60, Shape::vocabulary);
  for (const KvType type : {KvType::f16, KvType::f32, KvType::q8_0}) {
    EngineConfig config = tiny_config(path);
    config.kv = type;
    const std::vector<float> expected = logits_of(config, ids, true);
    for (const std::uint32_t batch : {1u, 3u, 5u, 60u})
      for (const std::uint32_t threads : {1u, 3u}) {
        config.batch_tokens = batch;
        config.threads = threads;
        INFO("-ub " << batch << ", threads " << threads);
        CHECK(logits_of(config, ids) == expected);
      }
  }
}

TEST_CASE("deepseek4: the first layers' experts are those of the table, in its order") {
  const TempFolder folder;
  const auto made = open_engine(config_of(folder.write("m.gguf", Shape().build().build())));
  std::size_t seen = 0;
  const auto sink = [&](const TokenPlace& place, LayerIndex layer,
                        std::span<const ExpertIndex> experts, std::span<const float>) {
    if (layer >= Shape::hashed) return;
    ++seen;
    REQUIRE(experts.size() == Shape::used);
    for (std::uint32_t k = 0; k < Shape::used; ++k)
      CHECK(experts[k] == Shape::hash_expert(static_cast<std::uint32_t>(place.id), k));
  };
  const RoutingSink routing(sink);
  made->engine->set_routing_sink(&routing);
  logits_of(*made->engine, some_ids(32, Shape::vocabulary));
  CHECK(seen == 32);
}

TEST_CASE("deepseek4: a table that names an expert that does not exist is refused") {
  const TempFolder folder;
  for (const std::int32_t bad : {-1, 8, 1 << 30}) {
    TinyModel model = Shape().build();
    std::string& table = model.tensor("blk.0.ffn_gate_tid2eid.weight").data;
    table.replace(5 * Shape::used * sizeof bad, sizeof bad, raw(bad));
    const Error refused = engine_error(config_of(folder.write("m.gguf", model.build())));
    CHECK(refused.code == ErrorCode::format);
    CHECK_THAT(refused.what, Catch::Contains("m.gguf: tensor blk.0.ffn_gate_tid2eid.weight: token "
                                             "5 goes to expert " +
                                             std::to_string(bad)));
    CHECK_THAT(refused.what, Catch::Contains("but there are 8"));
  }
}

TEST_CASE("deepseek4: a session goes on after a batch that failed half way") {
  const TempFolder folder;
  Shape shape;
  shape.ratios = {4, 8, 0, 4};  // the first layer pools before the failure is seen
  TinyModel model = shape.build();
  // The last token's row is infinite.
  std::string& table = model.tensor("token_embd.weight").data;
  const std::string infinite = raw(std::numeric_limits<float>::infinity());
  table.replace(table.size() - infinite.size(), infinite.size(), infinite);
  const auto made = open_engine(config_of(folder.write("m.gguf", model.build())));
  const auto ids = some_ids(40, Shape::vocabulary - 1);
  const std::vector<float> expected = logits_of(*made->engine, ids);
  for (const std::size_t before : {1u, 6u, 17u, 31u}) {
    for (const std::size_t failing : {1u, 2u, 6u}) {
      auto session = made->engine->new_session();
      REQUIRE(session.has_value());
      process(*made, *session, std::span(ids).first(before));
      std::vector<TokenId> bad(failing, 3);
      bad.back() = Shape::vocabulary - 1;
      const Status refused = made->engine->process(*session, bad, LogitsWanted::last,
                                                   [](std::size_t, const float*) {});
      CHECK_FALSE(refused.has_value());
      const std::size_t kept = session->tokens().size();
      CHECK((kept == before || kept == 0));
      const std::vector<float> rest = process(*made, *session, std::span(ids).subspan(kept));
      INFO(before << " tokens, then " << failing << ", kept " << kept);
      REQUIRE(rest.size() == expected.size() - kept * Shape::vocabulary);
      CHECK(std::equal(rest.begin(), rest.end(),
                       expected.begin() + static_cast<std::ptrdiff_t>(kept * Shape::vocabulary)));
    }
  }
}

TEST_CASE("deepseek4: two sessions in turn do not touch each other") {
  const TempFolder folder;
  const auto made = open_engine(config_of(folder.write("m.gguf", Shape().build().build())));
  const auto ids = some_ids(36, Shape::vocabulary);
  const std::vector<float> expected = logits_of(*made->engine, ids);
  auto a = made->engine->new_session();
  auto b = made->engine->new_session();
  REQUIRE((a.has_value() && b.has_value()));
  for (std::size_t t = 0; t < ids.size(); ++t) {
    const std::vector<float> row = process(*made, *a, {&ids[t], 1});
    CHECK(std::equal(row.begin(), row.end(), &expected[t * Shape::vocabulary]));
    process(*made, *b, {&ids[(t + 7) % ids.size()], 1});
  }
}
