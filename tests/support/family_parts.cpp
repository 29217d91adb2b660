#include "tests/support/family_parts.h"

#include <cstdint>
#include <initializer_list>
#include <utility>

namespace millrace::testing {

namespace {

constexpr std::uint64_t width = 64, heads = 4, kv_heads = 2, head_dim = 32, inner = 96;
constexpr std::uint64_t experts = 8, expert_width = 40, layers = 4, vocabulary = 48;
constexpr std::uint64_t key_heads = 2, value_heads = 4, key_dim = 24, value_dim = 16, taps = 4;

class Builder {
 public:
  explicit Builder(const FamilySpec& family) : family_(family) { parts_.files = {"m.gguf"}; }

  Checkpoint::Parts build() {
    put("general.architecture", std::string(family_.architecture));
    add_keys();
    tensor("token_embd.weight", {width, vocabulary});
    tensor("output.weight", {width, vocabulary});
    tensor("output_norm.weight", {width});
    for (std::uint64_t layer = 0; layer < layers; ++layer) {
      prefix_ = "blk." + std::to_string(layer) + ".";
      tensor(prefix_ + "attn_norm.weight", {width});
      const bool delta = family_.delta_nets != DeltaNets::none && layer + 1 != layers;
      if (delta) add_delta_net();
      else add_attention();
      tensor(prefix_ + family_.ffn_norm + ".weight", {width});
      if (family_.experts == Presence::never) add_dense();
      else add_experts();
    }
    return std::move(parts_);
  }

 private:
  void put(const std::string& key, MetaValue value) {
    parts_.keys.push_back(key);
    parts_.meta[key] = std::move(value);
  }
  void number(const char* key, std::uint64_t value) {
    put(std::string(family_.architecture) + "." + key, value);
  }

  void add_keys() {
    number("block_count", layers);
    number("context_length", 128);
    number("embedding_length", width);
    number("feed_forward_length", inner);
    number("attention.head_count", heads);
    number("attention.head_count_kv", kv_heads);
    number("attention.key_length", head_dim);
    number("attention.value_length", head_dim);
    put(std::string(family_.architecture) + ".attention.layer_norm_rms_epsilon", 1e-6);
    number("vocab_size", vocabulary);
    if (family_.sliding != SlidingLayers::none) number("attention.sliding_window", 16);
    if (family_.experts != Presence::never) {
      number("expert_count", experts);
      number("expert_used_count", 2);
      if (family_.expert_width != ExpertWidth::feed_forward_length)
        number("expert_feed_forward_length", expert_width);
      if (family_.shared == SharedExpert::gated)
        number("expert_shared_feed_forward_length", expert_width);
      if (family_.shared == SharedExpert::counted) number("expert_shared_count", 1);
    }
    if (family_.delta_nets == DeltaNets::none) return;
    number("full_attention_interval", layers);
    number("ssm.group_count", key_heads);
    number("ssm.time_step_rank", value_heads);
    number("ssm.state_size", key_dim);
    number("ssm.inner_size", value_heads * value_dim);
    number("ssm.conv_kernel", taps);
  }

  void tensor(const std::string& name, const std::vector<std::uint64_t>& ne) {
    TensorInfo info;
    info.name = name;
    info.dims = static_cast<std::uint32_t>(ne.size());
    std::uint64_t elements = 1;
    for (std::size_t i = 0; i < ne.size(); ++i) elements *= info.ne[i] = ne[i];
    info.offset_bytes = offset_;
    info.bytes = elements * sizeof(float);
    offset_ += info.bytes;
    parts_.tensors.push_back(std::move(info));
  }
  void matrix(const char* base, std::uint64_t columns, std::uint64_t rows) {
    tensor(prefix_ + base + ".weight", {columns, rows});
  }
  void vector(const std::string& name, std::uint64_t count, Presence presence) {
    if (presence != Presence::never) tensor(prefix_ + name, {count});
  }

  void add_attention() {
    const std::uint64_t q_rows = heads * head_dim * (family_.output_gate ? 2 : 1);
    matrix("attn_q", width, q_rows);
    matrix("attn_k", width, kv_heads * head_dim);
    matrix("attn_v", width, kv_heads * head_dim);
    matrix("attn_output", heads * head_dim, width);
    vector("attn_q.bias", q_rows, family_.qkv_bias);
    vector("attn_k.bias", kv_heads * head_dim, family_.qkv_bias);
    vector("attn_v.bias", kv_heads * head_dim, family_.qkv_bias);
    vector("attn_output.bias", width, family_.output_bias);
    vector("attn_sinks.weight", heads, family_.sinks);
    if (family_.qk_norm == QkNorm::none) return;
    const bool row = family_.qk_norm == QkNorm::whole_row;
    vector("attn_q_norm.weight", row ? heads * head_dim : head_dim, family_.qk_norm_presence);
    vector("attn_k_norm.weight", row ? kv_heads * head_dim : head_dim, family_.qk_norm_presence);
  }

  void add_delta_net() {
    const std::uint64_t keys = key_heads * key_dim;
    const std::uint64_t values = value_heads * value_dim;
    matrix("attn_qkv", width, 2 * keys + values);
    matrix("attn_gate", width, values);
    if (family_.delta_nets == DeltaNets::grouped_heads) {
      matrix("ssm_ba", width, 2 * value_heads);
    } else {
      matrix("ssm_beta", width, value_heads);
      matrix("ssm_alpha", width, value_heads);
    }
    matrix("ssm_conv1d", taps, 2 * keys + values);
    vector("ssm_dt.bias", value_heads, Presence::required);
    vector("ssm_a", value_heads, Presence::required);
    vector("ssm_norm.weight", value_dim, Presence::required);
    matrix("ssm_out", values, width);
  }

  void add_dense() {
    matrix("ffn_gate", width, inner);
    matrix("ffn_up", width, inner);
    matrix("ffn_down", inner, width);
  }

  void add_experts() {
    const std::uint64_t rows =
        family_.expert_width == ExpertWidth::feed_forward_length ? inner : expert_width;
    matrix("ffn_gate_inp", width, experts);
    vector("ffn_gate_inp.bias", experts, family_.router_bias);
    vector("exp_probs_b.bias", experts, family_.selection_bias);
    tensor(prefix_ + "ffn_gate_exps.weight", {width, rows, experts});
    tensor(prefix_ + "ffn_up_exps.weight", {width, rows, experts});
    tensor(prefix_ + "ffn_down_exps.weight", {rows, width, experts});
    if (family_.expert_bias != Presence::never) {
      tensor(prefix_ + "ffn_gate_exps.bias", {rows, experts});
      tensor(prefix_ + "ffn_up_exps.bias", {rows, experts});
      tensor(prefix_ + "ffn_down_exps.bias", {width, experts});
    }
    if (family_.shared == SharedExpert::none) return;
    if (family_.shared == SharedExpert::gated)
      vector("ffn_gate_inp_shexp.weight", width, Presence::required);
    matrix("ffn_gate_shexp", width, expert_width);
    matrix("ffn_up_shexp", width, expert_width);
    matrix("ffn_down_shexp", expert_width, width);
  }

  const FamilySpec& family_;
  Checkpoint::Parts parts_;
  std::string prefix_;
  std::uint64_t offset_ = 4096;
};

}  // namespace

std::optional<Checkpoint::Parts> family_parts(const FamilySpec& family) {
  if (family.attention != AttentionKind::gqa) return std::nullopt;
  return Builder(family).build();
}

bool may_be_missing(const FamilySpec& family, const std::string& tensor) {
  return tensor == "rope_freqs.weight" || (tensor == "output.weight" && !family.untied);
}

}  // namespace millrace::testing
