#include "tests/support/tiny_model.h"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

namespace millrace::testing {

namespace {

// SplitMix64.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  float uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(next() >> 40) * 0x1p-24F;
  }

 private:
  std::uint64_t state_;
};

std::uint64_t seed_of(std::uint64_t seed, std::string_view name) {
  for (const char c : name) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return seed;
}

std::string raw_u16(std::uint64_t bits) { return raw(static_cast<std::uint16_t>(bits)); }

// Values of some tenths, whatever the type.
std::string random_block(DType type, Draws& draws) {
  std::string bytes;
  const auto random_bytes = [&](int count) {
    for (int i = 0; i < count; ++i) bytes += static_cast<char>(draws.next() & 0xff);
  };
  switch (type) {
    case DType::f32:
      return raw(draws.uniform(-0.25F, 0.25F));
    case DType::f16:  // exponents of 2^-7 to 2^-4
      return raw_u16((draws.next() & 0x83ff) | ((8 + draws.next() % 4) << 10));
    case DType::bf16:
      return raw_u16(std::bit_cast<std::uint32_t>(draws.uniform(-0.25F, 0.25F)) >> 16);
    case DType::q8_0:
      bytes = raw_u16(0x1400 + draws.next() % 0x400);
      random_bytes(32);
      return bytes;
    case DType::q4_0:
      bytes = raw_u16(0x2400 + draws.next() % 0x400);
      random_bytes(16);
      return bytes;
    case DType::mxfp4:
      bytes += static_cast<char>(121 + draws.next() % 2);
      random_bytes(16);
      return bytes;
    case DType::q4_k:  // d times scales to 63 times codes to 15, and minima
      bytes = raw_u16(0x0800 + draws.next() % 0x400);
      bytes += raw_u16(0x0c00 + draws.next() % 0x400);
      random_bytes(140);
      return bytes;
    case DType::q6_k:
      random_bytes(208);
      return bytes + raw_u16(0x0100 + draws.next() % 0x200);
    default:
      throw std::invalid_argument("no random weights of this type");
  }
}

}  // namespace

TinyShape dense_shape() {
  TinyShape shape;
  shape.architecture = "llama";
  shape.experts = 0;
  shape.dense_width = {96, 96};
  return shape;
}

std::string random_weights(DType type, std::uint64_t columns, std::uint64_t rows,
                           std::uint64_t seed) {
  Draws draws(seed);
  std::string bytes;
  for (std::uint64_t i = 0; i < columns / dtype_info(type).block_elems * rows; ++i)
    bytes += random_block(type, draws);
  return bytes;
}

TinyModel::TinyModel(const TinyShape& shape) : shape_(shape) {
  add_keys();
  add_random("token_embd.weight", {shape.width, shape.vocabulary}, shape.matrices);
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) add_layer(layer);
  add_random("output_norm.weight", {shape.width}, DType::f32);
  if (!shape.tied) add_random("output.weight", {shape.width, shape.vocabulary}, shape.matrices);
}

void TinyModel::add_keys() {
  string("general.architecture", shape_.architecture);
  string("general.name", "tiny");
  u32(".block_count", shape_.layers);
  u32(".embedding_length", shape_.width);
  u32(".context_length", shape_.context);
  u32(".attention.head_count", shape_.heads);
  u32(".attention.head_count_kv", shape_.kv_heads);
  u32(".attention.key_length", shape_.head_dim);
  u32(".attention.value_length", shape_.head_dim);
  f32(".attention.layer_norm_rms_epsilon", 1e-6F);
  f32(".rope.freq_base", 10000);
  u32(".vocab_size", shape_.vocabulary);
  if (shape_.experts == 0) {
    numbers(".feed_forward_length", shape_.dense_width);
    return;
  }
  u32(".expert_count", shape_.experts);
  u32(".expert_used_count", shape_.experts_used);
  u32(shape_.architecture == "llama" ? ".feed_forward_length" : ".expert_feed_forward_length",
      shape_.expert_width);
}

void TinyModel::add_layer(std::uint32_t layer) {
  const TinyShape& s = shape_;
  const auto add_part = [&](const char* base, std::vector<std::uint64_t> ne, DType type) {
    add_random("blk." + std::to_string(layer) + "." + base + ".weight", std::move(ne), type);
  };
  add_part("attn_norm", {s.width}, DType::f32);
  add_part("attn_q", {s.width, s.heads * s.head_dim}, s.matrices);
  add_part("attn_k", {s.width, s.kv_heads * s.head_dim}, s.matrices);
  add_part("attn_v", {s.width, s.kv_heads * s.head_dim}, s.matrices);
  add_part("attn_output", {s.heads * s.head_dim, s.width}, s.matrices);
  if (s.architecture == "qwen3moe") {
    add_part("attn_q_norm", {s.head_dim}, DType::f32);
    add_part("attn_k_norm", {s.head_dim}, DType::f32);
  }
  add_part("ffn_norm", {s.width}, DType::f32);
  if (s.experts == 0) {
    const std::uint64_t inner = s.dense_width.at(layer);
    add_part("ffn_gate", {s.width, inner}, s.matrices);
    add_part("ffn_up", {s.width, inner}, s.matrices);
    add_part("ffn_down", {inner, s.width}, s.matrices);
    return;
  }
  add_part("ffn_gate_inp", {s.width, s.experts}, DType::f32);
  add_part("ffn_gate_exps", {s.width, s.expert_width, s.experts}, s.matrices);
  add_part("ffn_up_exps", {s.width, s.expert_width, s.experts}, s.matrices);
  add_part("ffn_down_exps", {s.expert_width, s.width, s.experts}, s.matrices);
}

std::string TinyModel::whole(std::string_view key) const {
  return key.starts_with('.') ? shape_.architecture + std::string(key) : std::string(key);
}

TinyModel& TinyModel::set(std::string_view key, std::uint32_t type, std::string bytes) {
  const std::string name = whole(key);
  for (Pair& pair : pairs_) {
    if (pair.key != name) continue;
    pair = {name, type, std::move(bytes)};
    return *this;
  }
  pairs_.push_back({name, type, std::move(bytes)});
  return *this;
}

TinyModel& TinyModel::u32(std::string_view key, std::uint32_t value) {
  return set(key, meta_u32, raw(value));
}

TinyModel& TinyModel::f32(std::string_view key, float value) {
  return set(key, meta_f32, raw(value));
}

TinyModel& TinyModel::string(std::string_view key, std::string_view text) {
  return set(key, meta_string, raw_string(text));
}

TinyModel& TinyModel::numbers(std::string_view key, const std::vector<std::uint32_t>& values) {
  std::string bytes =
      raw(static_cast<std::uint32_t>(meta_u32)) + raw(static_cast<std::uint64_t>(values.size()));
  for (const std::uint32_t value : values) bytes += raw(value);
  return set(key, meta_array, std::move(bytes));
}

TinyModel& TinyModel::strings(std::string_view key, const std::vector<std::string>& values) {
  std::string bytes =
      raw(static_cast<std::uint32_t>(meta_string)) + raw(static_cast<std::uint64_t>(values.size()));
  for (const std::string& value : values) bytes += raw_string(value);
  return set(key, meta_array, std::move(bytes));
}

TinyModel& TinyModel::erase(std::string_view key) {
  const std::string name = whole(key);
  std::erase_if(pairs_, [&](const Pair& pair) { return pair.key == name; });
  return *this;
}

BuiltTensor& TinyModel::tensor(std::string_view name) {
  for (BuiltTensor& tensor : tensors_)
    if (tensor.name == name) return tensor;
  throw std::out_of_range("no tensor " + std::string(name));
}

bool TinyModel::has(std::string_view name) const {
  return std::any_of(tensors_.begin(), tensors_.end(),
                     [&](const BuiltTensor& tensor) { return tensor.name == name; });
}

BuiltTensor TinyModel::take(std::string_view name) {
  BuiltTensor taken = std::move(tensor(name));
  taken.name = name;
  std::erase_if(tensors_, [&](const BuiltTensor& tensor) {
    return tensor.name.empty() || tensor.name == name;
  });
  return taken;
}

TinyModel& TinyModel::add(std::string_view name, std::vector<std::uint64_t> ne, DType type,
                          std::string data) {
  BuiltTensor made;
  made.name = name;
  made.ne = std::move(ne);
  made.type = static_cast<std::uint32_t>(type);
  made.data = std::move(data);
  tensors_.push_back(std::move(made));
  return *this;
}

TinyModel& TinyModel::add_random(std::string_view name, std::vector<std::uint64_t> ne, DType type) {
  std::uint64_t rows = 1;
  for (std::size_t i = 1; i < ne.size(); ++i) rows *= ne[i];
  const std::uint64_t seed = seed_of(shape_.seed, name);
  std::string data;
  if (name.find("norm") != std::string_view::npos) {
    Draws draws(seed);
    for (std::uint64_t i = 0; i < ne[0] * rows; ++i) data += raw(draws.uniform(0.8F, 1.2F));
  } else {
    data = random_weights(type, ne[0], rows, seed);
  }
  return add(name, std::move(ne), type, std::move(data));
}

std::string TinyModel::build() const {
  GgufBuilder builder;
  for (const Pair& pair : pairs_) builder.meta(pair.key, pair.type, pair.bytes);
  for (const BuiltTensor& tensor : tensors_) builder.tensor(tensor);
  return builder.build();
}

std::vector<std::string> TinyModel::build_split(std::uint16_t count) const {
  std::vector<std::string> files;
  for (std::uint16_t index = 0; index < count; ++index) {
    GgufBuilder builder;
    for (const Pair& pair : pairs_)
      if (index == 0) builder.meta(pair.key, pair.type, pair.bytes);
    builder.split(index, count, static_cast<std::int32_t>(tensors_.size()));
    for (std::size_t i = 0; i < tensors_.size(); ++i)
      if (i * count / tensors_.size() == index) builder.tensor(tensors_[i]);
    files.push_back(builder.build());
  }
  return files;
}

void TinyModel::fuse_qkv() {
  for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".attn_";
    for (const char* suffix : {".weight", ".bias"}) {
      if (!has(prefix + "q" + suffix)) continue;
      BuiltTensor fused = take(prefix + "q" + suffix);
      for (const char* part : {"k", "v"}) {
        const BuiltTensor other = take(prefix + part + suffix);
        fused.ne.back() += other.ne.back();
        fused.data += other.data;
      }
      fused.name = prefix + "qkv" + suffix;
      tensors_.push_back(std::move(fused));
    }
  }
}

void TinyModel::fuse_gate_up() {
  for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".ffn_";
    const BuiltTensor gate = take(prefix + "gate_exps.weight");
    const BuiltTensor up = take(prefix + "up_exps.weight");
    const std::size_t slice = gate.data.size() / shape_.experts;
    std::string data;
    for (std::uint32_t expert = 0; expert < shape_.experts; ++expert)
      data += gate.data.substr(expert * slice, slice) + up.data.substr(expert * slice, slice);
    add(prefix + "gate_up_exps.weight", {gate.ne[0], 2 * gate.ne[1], gate.ne[2]}, shape_.matrices,
        std::move(data));
  }
}

void TinyModel::separate_experts() {
  for (std::uint32_t layer = 0; layer < shape_.layers; ++layer) {
    const std::string prefix = "blk." + std::to_string(layer) + ".ffn_";
    for (const std::string part : {"gate", "up", "down"}) {
      const BuiltTensor merged = take(prefix + part + "_exps.weight");
      const std::size_t slice = merged.data.size() / shape_.experts;
      for (std::uint32_t expert = 0; expert < shape_.experts; ++expert)
        add(prefix + part + "." + std::to_string(expert) + ".weight", {merged.ne[0], merged.ne[1]},
            shape_.matrices, merged.data.substr(expert * slice, slice));
    }
  }
}

}  // namespace millrace::testing
