#include "model/format/safetensors/tensor_names.h"

#include <fmt/format.h>

#include <array>

namespace millrace {

namespace {

struct Renamed {
  std::string_view from, to;
};

constexpr std::array globals = {
    Renamed{"embed_tokens", "token_embd"},
    Renamed{"norm", "output_norm"},
    Renamed{"lm_head", "output"},
    Renamed{"embed", "token_embd"},
    Renamed{"head", "output"},
};

// Whole.
constexpr std::array global_parameters = {
    Renamed{"hc_head_fn", "output_hc_fn.weight"},
    Renamed{"hc_head_base", "output_hc_base.weight"},
    Renamed{"hc_head_scale", "output_hc_scale.weight"},
};

// Of a layer; without what stands behind the last dot.
constexpr std::array modules = {
    Renamed{"input_layernorm", "attn_norm"},
    Renamed{"self_attn.q_proj", "attn_q"},
    Renamed{"self_attn.k_proj", "attn_k"},
    Renamed{"self_attn.v_proj", "attn_v"},
    Renamed{"self_attn.o_proj", "attn_output"},
    Renamed{"self_attn.q_norm", "attn_q_norm"},
    Renamed{"self_attn.k_norm", "attn_k_norm"},
    Renamed{"self_attn.q_a_proj", "attn_q_a"},
    Renamed{"self_attn.q_a_layernorm", "attn_q_a_norm"},
    Renamed{"self_attn.q_b_proj", "attn_q_b"},
    Renamed{"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    Renamed{"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    Renamed{"self_attn.kv_b_proj", "attn_kv_b"},
    Renamed{"linear_attn.in_proj_qkvz", "ssm_in"},
    Renamed{"linear_attn.in_proj_ba", "ssm_ba"},
    Renamed{"linear_attn.in_proj_qkv", "attn_qkv"},
    Renamed{"linear_attn.in_proj_z", "attn_gate"},
    Renamed{"linear_attn.in_proj_b", "ssm_beta"},
    Renamed{"linear_attn.in_proj_a", "ssm_alpha"},
    Renamed{"linear_attn.conv1d", "ssm_conv1d"},
    Renamed{"linear_attn.norm", "ssm_norm"},
    Renamed{"linear_attn.out_proj", "ssm_out"},
    Renamed{"mlp.gate_proj", "ffn_gate"},
    Renamed{"mlp.up_proj", "ffn_up"},
    Renamed{"mlp.down_proj", "ffn_down"},
    Renamed{"mlp.gate", "ffn_gate_inp"},
    Renamed{"mlp.router", "ffn_gate_inp"},
    Renamed{"block_sparse_moe.gate", "ffn_gate_inp"},
    Renamed{"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
    Renamed{"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    Renamed{"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    Renamed{"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    Renamed{"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    Renamed{"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    Renamed{"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    // DeepSeek-V4.
    Renamed{"attn_norm", "attn_norm"},
    Renamed{"ffn_norm", "ffn_norm"},
    Renamed{"attn.wq_a", "attn_q_a"},
    Renamed{"attn.q_norm", "attn_q_a_norm"},
    Renamed{"attn.wq_b", "attn_q_b"},
    Renamed{"attn.wkv", "attn_kv"},
    Renamed{"attn.kv_norm", "attn_kv_a_norm"},
    Renamed{"attn.wo_a", "attn_output_a"},
    Renamed{"attn.wo_b", "attn_output_b"},
    Renamed{"attn.compressor.wkv", "attn_compressor_kv"},
    Renamed{"attn.compressor.wgate", "attn_compressor_gate"},
    Renamed{"attn.compressor.norm", "attn_compressor_norm"},
    Renamed{"attn.indexer.wq_b", "indexer.attn_q_b"},
    Renamed{"attn.indexer.weights_proj", "indexer.proj"},
    Renamed{"attn.indexer.compressor.wkv", "indexer_compressor_kv"},
    Renamed{"attn.indexer.compressor.wgate", "indexer_compressor_gate"},
    Renamed{"attn.indexer.compressor.norm", "indexer_compressor_norm"},
    Renamed{"ffn.gate", "ffn_gate_inp"},
    Renamed{"ffn.shared_experts.w1", "ffn_gate_shexp"},
    Renamed{"ffn.shared_experts.w3", "ffn_up_shexp"},
    Renamed{"ffn.shared_experts.w2", "ffn_down_shexp"},
    // Of layers that predict further tokens.
    Renamed{"eh_proj", "nextn.eh_proj"},
    Renamed{"enorm", "nextn.enorm"},
    Renamed{"hnorm", "nextn.hnorm"},
    Renamed{"embed_tokens", "nextn.embed_tokens"},
    Renamed{"shared_head.norm", "nextn.shared_head_norm"},
    Renamed{"shared_head.head", "nextn.shared_head_head"},
};

// Of a layer, whole.
constexpr std::array parameters = {
    Renamed{"self_attn.sinks", "attn_sinks.weight"},
    Renamed{"linear_attn.A_log", "ssm_a"},
    Renamed{"linear_attn.dt_bias", "ssm_dt.bias"},
    Renamed{"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    Renamed{"block_sparse_moe.e_score_correction_bias", "exp_probs_b.bias"},
    Renamed{"block_sparse_moe.gate.e_score_correction_bias", "exp_probs_b.bias"},
    Renamed{"ffn.gate.bias", "exp_probs_b.bias"},
    Renamed{"ffn.gate.tid2eid", "ffn_gate_tid2eid.weight"},
    Renamed{"attn.attn_sink", "attn_sinks.weight"},
    Renamed{"attn.compressor.ape", "attn_compressor_ape.weight"},
    Renamed{"attn.indexer.compressor.ape", "indexer_compressor_ape.weight"},
    Renamed{"hc_attn_fn", "hc_attn_fn.weight"},
    Renamed{"hc_attn_base", "hc_attn_base.weight"},
    Renamed{"hc_attn_scale", "hc_attn_scale.weight"},
    Renamed{"hc_ffn_fn", "hc_ffn_fn.weight"},
    Renamed{"hc_ffn_base", "hc_ffn_base.weight"},
    Renamed{"hc_ffn_scale", "hc_ffn_scale.weight"},
    Renamed{"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    Renamed{"mlp.experts.down_proj", "ffn_down_exps.weight"},
    Renamed{"mlp.experts.gate_up_proj_blocks", "ffn_gate_up_exps.blocks"},
    Renamed{"mlp.experts.gate_up_proj_scales", "ffn_gate_up_exps.scales"},
    Renamed{"mlp.experts.gate_up_proj_bias", "ffn_gate_up_exps.bias"},
    Renamed{"mlp.experts.down_proj_blocks", "ffn_down_exps.blocks"},
    Renamed{"mlp.experts.down_proj_scales", "ffn_down_exps.scales"},
    Renamed{"mlp.experts.down_proj_bias", "ffn_down_exps.bias"},
};

constexpr std::array projections = {
    Renamed{"gate_proj", "ffn_gate"}, Renamed{"up_proj", "ffn_up"},
    Renamed{"down_proj", "ffn_down"}, Renamed{"w1", "ffn_gate"},
    Renamed{"w3", "ffn_up"},          Renamed{"w2", "ffn_down"},
};

template <class List>
std::string_view find(const List& list, std::string_view from) {
  for (const Renamed& each : list)
    if (each.from == from) return each.to;
  return {};
}

bool cut_front(std::string_view& text, std::string_view front) {
  if (!text.starts_with(front)) return false;
  text.remove_prefix(front.size());
  return true;
}

// Cuts "12." off the front.
bool cut_number(std::string_view& text, std::string_view& number) {
  const std::size_t dot = text.find('.');
  if (dot == 0 || dot == std::string_view::npos || dot > 6) return false;
  number = text.substr(0, dot);
  if (number.find_first_not_of("0123456789") != std::string_view::npos) return false;
  text.remove_prefix(dot + 1);
  return true;
}

// "12.gate_proj" of an expert.
std::string expert_name(std::string_view rest) {
  std::string_view number;
  if (!cut_number(rest, number)) return {};
  const std::string_view to = find(projections, rest);
  return to.empty() ? std::string() : fmt::format("{}.{}", to, number);
}

// A layer's name behind its number.
std::string layer_name(std::string_view rest, std::string_view ffn_norm) {
  if (const std::string_view to = find(parameters, rest); !to.empty()) return std::string(to);
  const std::size_t dot = rest.rfind('.');
  if (dot == std::string_view::npos) return {};
  std::string_view module = rest.substr(0, dot);
  const std::string_view suffix = rest.substr(dot);
  std::string to(find(modules, module));
  if (module == "post_attention_layernorm") to = ffn_norm;
  if (cut_front(module, "mlp.experts.") || cut_front(module, "block_sparse_moe.experts.") ||
      cut_front(module, "ffn.experts."))
    to = expert_name(module);
  return to.empty() ? to : to.append(suffix);
}

}  // namespace

std::string gguf_tensor_name(std::string_view name, std::string_view ffn_norm) {
  cut_front(name, "model.");
  cut_front(name, "language_model.");
  cut_front(name, "model.");
  if (cut_front(name, "layers.")) {
    std::string_view number;
    if (!cut_number(name, number)) return {};
    const std::string to = layer_name(name, ffn_norm);
    return to.empty() ? to : fmt::format("blk.{}.{}", number, to);
  }
  if (const std::string_view whole = find(global_parameters, name); !whole.empty())
    return std::string(whole);
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return {};
  const std::string_view to = find(globals, name.substr(0, dot));
  return to.empty() ? std::string() : std::string(to).append(name.substr(dot));
}

bool is_unused_part(std::string_view name) noexcept {
  for (const std::string_view front : {"visual.", "model.visual.", "vision_tower.", "mtp.",
                                       "multi_modal_projector.", "model.vision_tower."})
    if (name.starts_with(front)) return true;
  return name.ends_with("rotary_emb.inv_freq");
}

}  // namespace millrace
