// qwen3next, of which there is no oracle: a qwen35moe model whose value heads are brought into
// qwen3next's order, in both forms of its files, gives the logits that the independent engine gives
// for the model as it was.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "model/format/open.h"
#include "runtime/evaluate.h"
#include "tests/support/gguf_builder.h"
#include "tests/support/oracle_folder.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_engine.h"

using namespace millrace;
using namespace millrace::test;
using millrace::testing::BuiltTensor;
using millrace::testing::GgufBuilder;
using millrace::testing::TempFolder;

namespace {

const std::string folder = MILLRACE_SOURCE_ROOT "/tests/oracles/models/qwen35moe-q8_0";

constexpr std::size_t key_heads = 2, value_heads = 4, group = 2, dim = 64;
constexpr std::size_t key_rows = key_heads * dim;

// Where the value head that stands at `head` in qwen3next's order stands in qwen35moe's.
std::size_t tiled(std::size_t head) { return head % group * key_heads + head / group; }

struct Rows {
  BuiltTensor tensor;
  std::size_t bytes() const {
    std::size_t count = 1;
    for (std::size_t i = 1; i < tensor.ne.size(); ++i) count *= tensor.ne[i];
    return tensor.data.size() / count;
  }
  std::string cut(std::size_t first, std::size_t count) const {
    return tensor.data.substr(first * bytes(), count * bytes());
  }
};

// Value heads of `each` units of `unit` bytes behind `before` bytes, in qwen3next's order.
std::string regrouped(const std::string& data, std::size_t before, std::size_t head_bytes) {
  std::string out = data.substr(0, before);
  for (std::size_t head = 0; head < value_heads; ++head)
    out += data.substr(before + tiled(head) * head_bytes, head_bytes);
  REQUIRE(out.size() == data.size());
  return out;
}

class Converter {
 public:
  explicit Converter(bool joined) : joined_(joined), bytes_(read_bytes(folder + "/model.gguf")) {
    auto opened = open_checkpoint(folder + "/model.gguf");
    if (!opened) FAIL(opened.error().what);
    for (const TensorInfo& info : opened->tensors()) {
      Rows rows;
      rows.tensor.name = info.name;
      rows.tensor.ne.assign(info.ne.begin(), info.ne.begin() + info.dims);
      rows.tensor.type = static_cast<std::uint32_t>(info.type);
      rows.tensor.data = bytes_.substr(info.offset_bytes, info.bytes);
      tensors_.push_back(std::move(rows));
    }
    add_keys(*opened);
  }

  std::string build() {
    for (const Rows& rows : tensors_) add(rows);
    return builder_.build();
  }

 private:
  void add_keys(const Checkpoint& checkpoint) {
    builder_.string("general.architecture", "qwen3next");
    const std::string from = "qwen35moe.";
    for (const std::string& key : checkpoint.keys()) {
      if (!key.starts_with(from)) continue;
      const std::string name = "qwen3next." + key.substr(from.size());
      const MetaValue& value = *checkpoint.find_meta(key);
      if (const auto* number = std::get_if<std::uint64_t>(&value))
        builder_.u32(name, static_cast<std::uint32_t>(*number));
      if (const auto* number = std::get_if<std::int64_t>(&value))
        builder_.u32(name, static_cast<std::uint32_t>(*number));
      if (const auto* real = std::get_if<double>(&value))
        builder_.f32(name, static_cast<float>(*real));
    }
    builder_.u32("qwen3next.vocab_size", 320);
  }

  const Rows& find(const std::string& name) const {
    for (const Rows& rows : tensors_)
      if (rows.tensor.name == name) return rows;
    throw std::out_of_range(name);
  }

  void put(const std::string& name, const Rows& like, std::uint64_t rows, std::string data) {
    BuiltTensor tensor;
    tensor.name = name;
    tensor.ne = {like.tensor.ne[0], rows};
    tensor.type = like.tensor.type;
    tensor.data = std::move(data);
    builder_.tensor(std::move(tensor));
  }

  // One tensor of the file, as qwen3next has it.
  void add(Rows rows) {
    const std::string& name = rows.tensor.name;
    const std::string block = name.substr(0, name.rfind('.', name.rfind(".weight") - 1) + 1);
    std::string& data = rows.tensor.data;
    if (name.ends_with(".attn_qkv.weight")) {
      data = regrouped(data, 2 * key_rows * rows.bytes(), dim * rows.bytes());
      if (joined_) return add_joined(block, rows);
    } else if (name.ends_with(".attn_gate.weight")) {
      if (joined_) return;
      data = regrouped(data, 0, dim * rows.bytes());
    } else if (name.ends_with(".ssm_conv1d.weight")) {
      data = regrouped(data, 2 * key_rows * rows.bytes(), dim * rows.bytes());
    } else if (name.ends_with(".ssm_dt.bias") || name.ends_with(".ssm_a")) {
      data = regrouped(data, 0, sizeof(float));
    } else if (name.ends_with(".ssm_beta.weight")) {
      return add_pair(block, rows, find(block + "ssm_alpha.weight"));
    } else if (name.ends_with(".ssm_alpha.weight")) {
      return;
    } else if (name.ends_with(".ssm_out.weight")) {
      std::string out;
      for (std::size_t row = 0; row < rows.tensor.ne[1]; ++row)
        out += regrouped(rows.cut(row, 1), 0, rows.bytes() / value_heads);
      data = out;
    }
    builder_.tensor(rows.tensor);
  }

  // For each key head its value heads' strengths, then their decays.
  void add_pair(const std::string& block, const Rows& beta, const Rows& alpha) {
    std::string data;
    for (std::size_t key = 0; key < key_heads; ++key)
      for (const Rows* from : {&beta, &alpha})
        for (std::size_t i = 0; i < group; ++i) data += from->cut(tiled(key * group + i), 1);
    put(block + "ssm_ba.weight", beta, 2 * value_heads, data);
  }

  // For each key head q, k, its value heads' v, and their gates. The v of `qkv` are in order.
  void add_joined(const std::string& block, const Rows& qkv) {
    const Rows& gate = find(block + "attn_gate.weight");
    std::string data;
    for (std::size_t key = 0; key < key_heads; ++key) {
      data += qkv.cut(key * dim, dim) + qkv.cut(key_rows + key * dim, dim);
      data += qkv.cut(2 * key_rows + key * group * dim, group * dim);
      for (std::size_t i = 0; i < group; ++i) data += gate.cut(tiled(key * group + i) * dim, dim);
    }
    put(block + "ssm_in.weight", qkv, 2 * key_rows + 2 * value_heads * dim, data);
  }

  bool joined_;
  std::string bytes_;
  std::vector<Rows> tensors_;
  GgufBuilder builder_;
};

std::vector<float> logits(const std::string& file, const OracleFolder& oracle,
                          ActivationMode activations) {
  const TempFolder place;
  EngineConfig config;
  config.model_path = place.write("m.gguf", file);
  config.activations = activations;
  config.kv = KvType::f32;
  config.threads = 2;
  const auto engine = open_engine(config);
  CHECK_FALSE(engine->engine->spec().verified());
  std::vector<float> rows;
  std::vector<TokenId> greedy;
  const auto done = run_logits(
      *engine->engine, {oracle.prompt, false, 0},
      [&](std::size_t, const float* row) {
        rows.insert(rows.end(), row, row + oracle.vocabulary);
        return true;
      },
      greedy);
  if (!done) FAIL(done.error().what);
  return rows;
}

}  // namespace

TEST_CASE("qwen3next: qwen35moe's numbers in its order give the independent engine's logits") {
  const OracleFolder oracle = read_oracle(folder);
  const std::string apart = Converter(false).build();
  const std::string joined = Converter(true).build();
  const std::vector<float> found = logits(apart, oracle, ActivationMode::f32);
  REQUIRE(found.size() == oracle.logits.size());
  double squares = 0;
  for (std::size_t i = 0; i < found.size(); ++i)
    squares += std::pow(double{found[i]} - double{oracle.logits[i]}, 2);
  const double error = std::sqrt(squares / static_cast<double>(found.size())) / oracle.deviation;
  WARN("rms " << error * 1e6 << "e-6 of the deviation");
  CHECK(error < 1e-4);
  for (const ActivationMode mode : {ActivationMode::f32, ActivationMode::q8})
    CHECK(logits(apart, oracle, mode) == logits(joined, oracle, mode));
}
