// Models of a few kilobytes with seeded random weights, as GGUF bytes: right ones, and ones that a
// test has changed in one place. A tensor's numbers depend on the seed and its name alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/dtype.h"
#include "tests/support/gguf_builder.h"

namespace millrace::testing {

struct TinyShape {
  std::string architecture = "qwen3moe";
  std::uint32_t layers = 2, width = 64, heads = 4, kv_heads = 2, head_dim = 32;
  std::uint32_t experts = 8, experts_used = 2, expert_width = 32;  // experts 0: dense
  std::vector<std::uint32_t> dense_width = {};                     // per layer, of dense models
  std::uint32_t vocabulary = 48, context = 64;
  DType matrices = DType::f32;  // F32, F16, BF16, Q8_0, Q4_0 or MXFP4; norms and router stay F32
  bool tied = false;
  std::uint64_t seed = 1;
};

// Dense, of the family `llama`.
TinyShape dense_shape();

// The bytes of `rows` rows of random weights of a type.
std::string random_weights(DType type, std::uint64_t columns, std::uint64_t rows,
                           std::uint64_t seed);

class TinyModel {
 public:
  explicit TinyModel(const TinyShape& shape);

  // Keys are given whole, or from the architecture on with a leading dot (".block_count").
  TinyModel& set(std::string_view key, std::uint32_t type, std::string bytes);
  TinyModel& u32(std::string_view key, std::uint32_t value);
  TinyModel& f32(std::string_view key, float value);
  TinyModel& string(std::string_view key, std::string_view text);
  TinyModel& numbers(std::string_view key, const std::vector<std::uint32_t>& values);
  TinyModel& strings(std::string_view key, const std::vector<std::string>& values);
  TinyModel& erase(std::string_view key);

  std::vector<BuiltTensor>& tensors() { return tensors_; }
  BuiltTensor& tensor(std::string_view name);  // throws std::out_of_range
  bool has(std::string_view name) const;
  BuiltTensor take(std::string_view name);  // removes it
  TinyModel& add(std::string_view name, std::vector<std::uint64_t> ne, DType type,
                 std::string data);
  // A random one, whose numbers follow from seed and name.
  TinyModel& add_random(std::string_view name, std::vector<std::uint64_t> ne, DType type);

  std::string build() const;
  // The same model in `count` files, the metadata in the first.
  std::vector<std::string> build_split(std::uint16_t count) const;

  // The same numbers otherwise laid out: attn_q, attn_k and attn_v as attn_qkv, with their biases;
  // ffn_gate_exps and ffn_up_exps as ffn_gate_up_exps; a tensor per expert.
  void fuse_qkv();
  void fuse_gate_up();
  void separate_experts();

 private:
  struct Pair {
    std::string key;
    std::uint32_t type;
    std::string bytes;
  };
  std::string whole(std::string_view key) const;
  void add_keys();
  void add_layer(std::uint32_t layer);

  TinyShape shape_;
  std::vector<Pair> pairs_;
  std::vector<BuiltTensor> tensors_;
};

}  // namespace millrace::testing
