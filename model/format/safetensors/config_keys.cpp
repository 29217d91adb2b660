#include "model/format/safetensors/config_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "model/format/safetensors/rope_keys.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

using Config = ConfigReader;
using Meta = MetadataWriter;

std::uint64_t wide(std::uint32_t value) { return value; }

// Refuses a setting that is not what the architecture does.
Status must_be(const Config& c, const char* key, bool given, bool wanted) {
  if (given == wanted) return {};
  return c.bad(key, fmt::format("{} is not supported for this architecture", given),
               ErrorCode::unsupported);
}

Status copy_number(const Config& c, Meta& m, const char* from, const char* to) {
  MILLRACE_ASSIGN(const auto value, c.number(from));
  if (value) m.set_own(to, wide(*value));
  return {};
}

Status need_number(const Config& c, Meta& m, const char* from, const char* to) {
  MILLRACE_ASSIGN(const std::uint32_t value, c.need_number(from));
  m.set_own(to, wide(value));
  return {};
}

// Number of layers, sizes, norms: what every architecture has.
Status base_keys(const Config& c, Meta& m) {
  MILLRACE_ASSIGN(const std::uint32_t layers, c.need_number("num_hidden_layers"));
  MILLRACE_ASSIGN(const std::uint32_t nextn, c.number("num_nextn_predict_layers", 0));
  m.set_own(".block_count", wide(layers) + nextn);
  m.set_own(".nextn_predict_layers", wide(nextn));
  MILLRACE_TRY(need_number(c, m, "max_position_embeddings", ".context_length"));
  MILLRACE_TRY(need_number(c, m, "hidden_size", ".embedding_length"));
  MILLRACE_TRY(need_number(c, m, "num_attention_heads", ".attention.head_count"));
  MILLRACE_TRY(copy_number(c, m, "num_key_value_heads", ".attention.head_count_kv"));
  MILLRACE_TRY(need_number(c, m, "vocab_size", ".vocab_size"));
  MILLRACE_TRY(copy_number(c, m, "intermediate_size", ".feed_forward_length"));
  MILLRACE_ASSIGN(const double eps, c.need_real("rms_norm_eps"));
  m.set_own(".attention.layer_norm_rms_epsilon", eps);
  MILLRACE_ASSIGN(const std::string activation, c.text("hidden_act"));
  if (!activation.empty() && activation != "silu")
    return c.bad("hidden_act", fmt::format("'{}' is not supported", printable(activation)),
                 ErrorCode::unsupported);
  return {};
}

// Heads of one size; `rotary_key` names the share of them that rotates, or nothing.
Status plain_heads(const Config& c, Meta& m) {
  MILLRACE_ASSIGN(const std::uint32_t width, c.need_number("hidden_size"));
  MILLRACE_ASSIGN(const std::uint32_t heads, c.need_number("num_attention_heads"));
  MILLRACE_ASSIGN(const std::uint32_t size,
                  c.number("head_dim", width / std::max<std::uint32_t>(1, heads)));
  m.set_own(".attention.key_length", wide(size));
  m.set_own(".attention.value_length", wide(size));
  MILLRACE_ASSIGN(const double share, rotary_share(c));
  m.set_own(".rope.dimension_count",
            static_cast<std::uint64_t>(std::floor(share * static_cast<double>(size))));
  return rope_keys(c, m);
}

Status expert_keys(const Config& c, Meta& m, const char* count, const char* width) {
  MILLRACE_TRY(need_number(c, m, count, ".expert_count"));
  MILLRACE_TRY(need_number(c, m, "num_experts_per_tok", ".expert_used_count"));
  return need_number(c, m, width, ".expert_feed_forward_length");
}

// Every layer must be MoE where our family says so.
Status all_layers_moe(const Config& c) {
  MILLRACE_ASSIGN(const std::uint32_t step, c.number("decoder_sparse_step", 1));
  const Json* dense = c.find("mlp_only_layers");
  if (step != 1 ||
      (dense != nullptr && dense->as_array() != nullptr && !dense->as_array()->empty()))
    return c.bad(step != 1 ? "decoder_sparse_step" : "mlp_only_layers",
                 "dense layers between MoE layers are not supported", ErrorCode::unsupported);
  return {};
}

Status no_window(const Config& c) {
  MILLRACE_ASSIGN(const bool windows, c.flag("use_sliding_window", false));
  return must_be(c, "use_sliding_window", windows, false);
}

// llama's and Mixtral's own files have the rows of q and k as the published code wants them.
Status llama(const Config& c, Meta& m) {
  MILLRACE_TRY(base_keys(c, m));
  m.set_own(".rope.split_pairs", true);
  return plain_heads(c, m);
}

Status mixtral(const Config& c, Meta& m) {
  MILLRACE_TRY(llama(c, m));
  MILLRACE_TRY(need_number(c, m, "num_local_experts", ".expert_count"));
  return need_number(c, m, "num_experts_per_tok", ".expert_used_count");
}

Status qwen_dense(const Config& c, Meta& m) {
  MILLRACE_TRY(base_keys(c, m));
  MILLRACE_TRY(no_window(c));
  return plain_heads(c, m);
}

Status qwen2_moe(const Config& c, Meta& m) {
  MILLRACE_TRY(qwen_dense(c, m));
  MILLRACE_TRY(all_layers_moe(c));
  MILLRACE_ASSIGN(const bool norm, c.flag("norm_topk_prob", false));
  MILLRACE_TRY(must_be(c, "norm_topk_prob", norm, false));
  MILLRACE_TRY(
      need_number(c, m, "shared_expert_intermediate_size", ".expert_shared_feed_forward_length"));
  return expert_keys(c, m, "num_experts", "moe_intermediate_size");
}

Status qwen3_moe(const Config& c, Meta& m) {
  MILLRACE_TRY(qwen_dense(c, m));
  MILLRACE_TRY(all_layers_moe(c));
  MILLRACE_ASSIGN(const bool norm, c.flag("norm_topk_prob", false));
  MILLRACE_TRY(must_be(c, "norm_topk_prob", norm, true));
  return expert_keys(c, m, "num_experts", "moe_intermediate_size");
}

Status olmoe(const Config& c, Meta& m) {
  MILLRACE_TRY(base_keys(c, m));
  MILLRACE_TRY(plain_heads(c, m));
  MILLRACE_ASSIGN(const bool norm, c.flag("norm_topk_prob", false));
  MILLRACE_TRY(must_be(c, "norm_topk_prob", norm, false));
  MILLRACE_ASSIGN(const auto clip, c.real("clip_qkv"));
  if (clip) m.set_own(".attention.clamp_kqv", *clip);
  return expert_keys(c, m, "num_experts", "intermediate_size");
}

Status gpt_oss(const Config& c, Meta& m) {
  MILLRACE_TRY(base_keys(c, m));
  MILLRACE_TRY(plain_heads(c, m));
  MILLRACE_TRY(need_number(c, m, "sliding_window", ".attention.sliding_window"));
  if (const Json* types = c.find("layer_types"); types != nullptr && types->as_array() != nullptr) {
    for (std::size_t i = 0; i < types->as_array()->size(); ++i) {
      const std::string* type = (*types->as_array())[i].as_string();
      const char* wanted = i % 2 == 0 ? "sliding_attention" : "full_attention";
      if (type == nullptr || *type != wanted)
        return c.bad("layer_types", fmt::format("layer {} is not {}", i, wanted),
                     ErrorCode::unsupported);
    }
  }
  MILLRACE_ASSIGN(const auto limit, c.real("swiglu_limit"));
  if (limit && *limit != 7)
    return c.bad("swiglu_limit", fmt::format("{} is not supported", *limit),
                 ErrorCode::unsupported);
  return expert_keys(c, m, "num_local_experts", "intermediate_size");
}

// How experts are limited to groups. A file that does not say it is of a family that has one way.
Status group_keys(const Config& c, Meta& m) {
  MILLRACE_ASSIGN(const std::string method, c.text("topk_method"));
  const bool by_best = method == "group_limited_greedy";
  if (!method.empty() && method != "greedy" && method != "noaux_tc" && !by_best)
    return c.bad("topk_method",
                 fmt::format("'{}' is not supported (known: greedy, group_limited_greedy, "
                             "noaux_tc)",
                             printable(method)),
                 ErrorCode::unsupported);
  if (method == "greedy") return {};
  if (by_best) m.set_own(".expert_group_by_best", true);
  MILLRACE_TRY(copy_number(c, m, "n_group", ".expert_group_count"));
  return copy_number(c, m, "topk_group", ".expert_group_used_count");
}

// Router settings of DeepSeek's and GLM's families.
Status routing_keys(const Config& c, Meta& m, std::uint64_t default_function) {
  MILLRACE_ASSIGN(const std::string function, c.text("scoring_func"));
  const std::array known_functions = {"softmax", "sigmoid", "sqrtsoftplus"};
  constexpr std::array<std::uint64_t, 3> codes = {1, 2, 4};
  const auto* const found = std::find(known_functions.begin(), known_functions.end(), function);
  if (!function.empty() && found == known_functions.end())
    return c.bad("scoring_func", fmt::format("'{}' is not supported", printable(function)),
                 ErrorCode::unsupported);
  m.set_own(".expert_gating_func",
            function.empty() ? default_function
                             : codes[static_cast<std::size_t>(found - known_functions.begin())]);
  MILLRACE_ASSIGN(const bool norm, c.flag("norm_topk_prob", false));
  m.set_own(".expert_weights_norm", norm);
  MILLRACE_ASSIGN(const auto scale, c.real("routed_scaling_factor"));
  if (scale) m.set_own(".expert_weights_scale", *scale);
  MILLRACE_TRY(group_keys(c, m));
  MILLRACE_ASSIGN(const std::uint32_t frequency, c.number("moe_layer_freq", 1));
  if (frequency != 1)
    return c.bad("moe_layer_freq", fmt::format("{} is not supported", frequency),
                 ErrorCode::unsupported);
  MILLRACE_TRY(copy_number(c, m, "n_shared_experts", ".expert_shared_count"));
  MILLRACE_TRY(copy_number(c, m, "first_k_dense_replace", ".leading_dense_block_count"));
  return expert_keys(c, m, "n_routed_experts", "moe_intermediate_size");
}

Status deepseek(const Config& c, Meta& m) {
  MILLRACE_TRY(base_keys(c, m));
  MILLRACE_ASSIGN(const std::uint32_t nope, c.need_number("qk_nope_head_dim"));
  MILLRACE_ASSIGN(const std::uint32_t rope, c.need_number("qk_rope_head_dim"));
  m.set_own(".attention.key_length", wide(nope) + rope);
  MILLRACE_TRY(need_number(c, m, "v_head_dim", ".attention.value_length"));
  MILLRACE_TRY(need_number(c, m, "kv_lora_rank", ".attention.kv_lora_rank"));
  MILLRACE_TRY(copy_number(c, m, "q_lora_rank", ".attention.q_lora_rank"));
  m.set_own(".rope.dimension_count", wide(rope));
  MILLRACE_TRY(rope_keys(c, m));
  MILLRACE_TRY(yarn_multiplier_key(c, m));
  return routing_keys(c, m, 1);
}

// Numbers of compressed attention and of hyper-connections.
Status compression_keys(const Config& c, Meta& m) {
  MILLRACE_TRY(need_number(c, m, "o_groups", ".attention.output_group_count"));
  MILLRACE_TRY(need_number(c, m, "o_lora_rank", ".attention.output_lora_rank"));
  MILLRACE_TRY(need_number(c, m, "index_n_heads", ".attention.indexer.head_count"));
  MILLRACE_TRY(need_number(c, m, "index_head_dim", ".attention.indexer.key_length"));
  MILLRACE_TRY(need_number(c, m, "index_topk", ".attention.indexer.top_k"));
  MILLRACE_ASSIGN(const std::vector<double> ratios, c.reals("compress_ratios"));
  std::vector<std::uint64_t> whole;
  for (const double ratio : ratios) {
    if (!(ratio >= 0 && ratio <= 1e6) ||
        ratio != static_cast<double>(static_cast<std::uint64_t>(ratio)))
      return c.bad("compress_ratios", fmt::format("holds {}", ratio));
    whole.push_back(static_cast<std::uint64_t>(ratio));
  }
  m.set_own(".attention.compress_ratios", std::move(whole));
  MILLRACE_ASSIGN(const double base, c.need_real("compress_rope_theta"));
  m.set_own(".attention.compress_rope_freq_base", base);
  MILLRACE_TRY(need_number(c, m, "hc_mult", ".hyper_connection.count"));
  MILLRACE_TRY(need_number(c, m, "hc_sinkhorn_iters", ".hyper_connection.sinkhorn_iterations"));
  MILLRACE_ASSIGN(const double epsilon, c.need_real("hc_eps"));
  m.set_own(".hyper_connection.epsilon", epsilon);
  return {};
}

Status deepseek_v4(const Config& c, Meta& m) {
  MILLRACE_TRY(base_keys(c, m));
  MILLRACE_ASSIGN(const std::uint32_t layers, c.need_number("num_hidden_layers"));
  m.set_own(".block_count", wide(layers));  // its further layer has names of its own
  m.set_own(".nextn_predict_layers", std::uint64_t{0});
  MILLRACE_TRY(need_number(c, m, "head_dim", ".attention.key_length"));
  MILLRACE_TRY(need_number(c, m, "head_dim", ".attention.value_length"));
  MILLRACE_TRY(need_number(c, m, "qk_rope_head_dim", ".rope.dimension_count"));
  MILLRACE_TRY(need_number(c, m, "q_lora_rank", ".attention.q_lora_rank"));
  MILLRACE_TRY(need_number(c, m, "sliding_window", ".attention.sliding_window"));
  MILLRACE_TRY(need_number(c, m, "num_hash_layers", ".hash_layer_count"));
  MILLRACE_ASSIGN(const auto limit, c.real("swiglu_limit"));
  constexpr std::uint32_t layers_max = 4096;
  if (limit && *limit != 0)
    m.set_own(".swiglu_clamp_exp", std::vector<double>(std::min(layers, layers_max), *limit));
  MILLRACE_TRY(rope_keys(c, m));
  MILLRACE_TRY(compression_keys(c, m));
  return routing_keys(c, m, 4);
}

Status glm4_moe(const Config& c, Meta& m) {
  MILLRACE_TRY(base_keys(c, m));
  MILLRACE_TRY(plain_heads(c, m));
  return routing_keys(c, m, 2);
}

Status minimax_m2(const Config& c, Meta& m) {
  MILLRACE_TRY(base_keys(c, m));
  MILLRACE_TRY(plain_heads(c, m));
  MILLRACE_TRY(copy_number(c, m, "rotary_dim", ".rope.dimension_count"));
  m.set_own(".nextn_predict_layers", std::uint64_t{0});
  m.set_own(".expert_gating_func", std::uint64_t{2});
  return expert_keys(c, m, "num_local_experts", "intermediate_size");
}

// Which layers attend; the others are delta nets.
Status attention_interval(const Config& c, Meta& m) {
  MILLRACE_ASSIGN(const std::uint32_t interval, c.number("full_attention_interval", 4));
  m.set_own(".full_attention_interval", wide(interval));
  const Json* types = c.find("layer_types");
  if (types == nullptr || types->as_array() == nullptr || interval == 0) return {};
  for (std::size_t i = 0; i < types->as_array()->size(); ++i) {
    const std::string* type = (*types->as_array())[i].as_string();
    const char* wanted = (i + 1) % interval == 0 ? "full_attention" : "linear_attention";
    if (type == nullptr || *type != wanted)
      return c.bad("layer_types", fmt::format("layer {} is not {}", i, wanted),
                   ErrorCode::unsupported);
  }
  return {};
}

Status delta_keys(const Config& c, Meta& m) {
  MILLRACE_TRY(base_keys(c, m));
  MILLRACE_TRY(plain_heads(c, m));
  MILLRACE_TRY(attention_interval(c, m));
  MILLRACE_ASSIGN(const bool gated, c.flag("attn_output_gate", true));
  MILLRACE_TRY(must_be(c, "attn_output_gate", gated, true));
  MILLRACE_TRY(need_number(c, m, "linear_conv_kernel_dim", ".ssm.conv_kernel"));
  MILLRACE_TRY(need_number(c, m, "linear_key_head_dim", ".ssm.state_size"));
  MILLRACE_TRY(need_number(c, m, "linear_num_key_heads", ".ssm.group_count"));
  MILLRACE_TRY(need_number(c, m, "linear_num_value_heads", ".ssm.time_step_rank"));
  MILLRACE_ASSIGN(const std::uint32_t heads, c.need_number("linear_num_value_heads"));
  MILLRACE_ASSIGN(const std::uint32_t size, c.need_number("linear_value_head_dim"));
  m.set_own(".ssm.inner_size", wide(heads) * size);
  return {};
}

Status qwen3_next(const Config& c, Meta& m) {
  MILLRACE_TRY(delta_keys(c, m));
  MILLRACE_TRY(all_layers_moe(c));
  MILLRACE_ASSIGN(const bool norm, c.flag("norm_topk_prob", true));
  MILLRACE_TRY(must_be(c, "norm_topk_prob", norm, true));
  MILLRACE_TRY(
      need_number(c, m, "shared_expert_intermediate_size", ".expert_shared_feed_forward_length"));
  return expert_keys(c, m, "num_experts", "moe_intermediate_size");
}

// As qwen3_next, but converters put the value heads into another order.
Status qwen35(const Config& c, Meta& m) {
  MILLRACE_TRY(delta_keys(c, m));
  m.set_own(".ssm.grouped_heads", true);
  return {};
}

Status qwen35_moe(const Config& c, Meta& m) {
  MILLRACE_TRY(qwen3_next(c, m));
  m.set_own(".ssm.grouped_heads", true);
  return {};
}

// How the tensors of a family differ from those of converted files.
enum class Layout : std::uint8_t { plain, norms_less_one, experts_by_inputs };

struct Known {
  const char* model_type;
  const char* architecture;
  Status (*keys)(const Config&, Meta&);
  const char* ffn_norm = "ffn_norm";
  Layout layout = Layout::plain;
};

constexpr const char* post_norm = "post_attention_norm";

constexpr std::array known = {
    Known{"llama", "llama", &llama},
    Known{"mistral", "llama", &llama},
    Known{"mixtral", "llama", &mixtral},
    Known{"qwen2", "qwen2", &qwen_dense},
    Known{"qwen3", "qwen3", &qwen_dense},
    Known{"qwen2_moe", "qwen2moe", &qwen2_moe},
    Known{"qwen3_moe", "qwen3moe", &qwen3_moe},
    Known{"olmoe", "olmoe", &olmoe},
    Known{"gpt_oss", "gpt-oss", &gpt_oss, post_norm, Layout::experts_by_inputs},
    Known{"deepseek_v2", "deepseek2", &deepseek},
    Known{"deepseek_v3", "deepseek2", &deepseek},
    Known{"kimi_k2", "deepseek2", &deepseek},
    Known{"deepseek_v4", "deepseek4", &deepseek_v4},
    Known{"glm4_moe", "glm4moe", &glm4_moe, post_norm},
    Known{"minimax_m2", "minimax-m2", &minimax_m2},
    Known{"qwen3_next", "qwen3next", &qwen3_next, post_norm, Layout::norms_less_one},
    Known{"qwen3_5_moe", "qwen35moe", &qwen35_moe, post_norm, Layout::norms_less_one},
    Known{"qwen3_5_moe_text", "qwen35moe", &qwen35_moe, post_norm, Layout::norms_less_one},
    Known{"qwen3_5", "qwen35", &qwen35, post_norm, Layout::norms_less_one},
    Known{"qwen3_5_text", "qwen35", &qwen35, post_norm, Layout::norms_less_one},
};

Result<const Known*> find_known(const Config& c, const std::string& model_type) {
  if (model_type.empty()) return c.bad("model_type", "missing");
  std::string names;
  for (const Known& each : known) {
    if (model_type == each.model_type) return &each;
    names += (names.empty() ? "" : ", ") + std::string(each.model_type);
  }
  return c.bad("model_type",
               fmt::format("'{}' is not supported (known: {})", printable(model_type), names),
               ErrorCode::unsupported);
}

// 4 bits in groups of 128 with zeros, packed as the "gemm" version does it.
Status check_awq(const Config& c) {
  MILLRACE_ASSIGN(const std::uint32_t bits, c.need_number("bits"));
  if (bits != 4)
    return c.bad("bits", fmt::format("{}: only 4 is supported", bits), ErrorCode::unsupported);
  MILLRACE_ASSIGN(const auto group, c.real("group_size"));
  if (group != 128.0)
    return c.bad("group_size", group ? fmt::format("{}: only 128 is supported", *group) : "missing",
                 group ? ErrorCode::unsupported : ErrorCode::format);
  MILLRACE_ASSIGN(std::string version, c.text("version"));
  for (char& letter : version)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  if (version != "gemm")
    return c.bad("version", fmt::format("'{}': only gemm is supported", printable(version)),
                 ErrorCode::unsupported);
  MILLRACE_ASSIGN(const bool zeros, c.flag("zero_point", true));
  return must_be(c, "zero_point", zeros, true);
}

// Blocks of 128 x 128 in FP8, gpt-oss' MXFP4, AWQ, or no quantization.
Result<CheckpointPacking> read_packing(const Config& c) {
  const auto quantization = c.below("quantization_config");
  if (!quantization) return CheckpointPacking::none;
  MILLRACE_ASSIGN(const std::string method, quantization->text("quant_method"));
  if (method == "mxfp4") return CheckpointPacking::mxfp4;
  if (method == "awq") {
    MILLRACE_TRY(check_awq(*quantization));
    return CheckpointPacking::awq;
  }
  if (method != "fp8")
    return quantization->bad(
        "quant_method",
        fmt::format("'{}' is not supported (known: fp8 in blocks of 128 x 128, "
                    "mxfp4, awq)",
                    printable(method)),
        ErrorCode::unsupported);
  MILLRACE_ASSIGN(const auto block, quantization->reals("weight_block_size"));
  if (block != std::vector<double>{128, 128})
    return quantization->bad("weight_block_size", "only [128, 128] is supported",
                             ErrorCode::unsupported);
  return CheckpointPacking::block_fp8;
}

}  // namespace

Result<ConfigFacts> write_config_keys(const ConfigReader& whole, MetadataWriter& metadata) {
  ConfigFacts facts;
  // Models that see images have the language model's settings below.
  const ConfigReader config = whole.below("text_config").value_or(whole);
  MILLRACE_ASSIGN(facts.model_type, config.text("model_type"));
  MILLRACE_ASSIGN(const Known* family, find_known(config, facts.model_type));
  metadata.set_architecture(family->architecture);
  facts.ffn_norm = family->ffn_norm;
  facts.norms_less_one = family->layout == Layout::norms_less_one;
  facts.experts_by_inputs = family->layout == Layout::experts_by_inputs;
  MILLRACE_TRY(family->keys(config, metadata));
  MILLRACE_ASSIGN(facts.packing, read_packing(whole));
  const ConfigReader& ties = config.find("tie_word_embeddings") != nullptr ? config : whole;
  facts.tied_is_given = ties.find("tie_word_embeddings") != nullptr;
  MILLRACE_ASSIGN(facts.tied_head, ties.flag("tie_word_embeddings", false));
  return facts;
}

}  // namespace millrace
