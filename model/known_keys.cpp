#include "model/known_keys.h"

#include <algorithm>
#include <array>

namespace millrace {

namespace {

// Keys that converters write for the families here, or for all, and that some family does not
// read: what they say follows from tensors, is fixed by the family, or does not touch text.
constexpr std::array<std::string_view, 47> names = {
    "attention.causal",
    "attention.clamp_kqv",
    "attention.head_count_kv",
    "attention.key_length_mla",
    "attention.kv_lora_rank",
    "attention.layer_norm_epsilon",
    "attention.q_lora_rank",
    "attention.scale",
    "attention.shared_kv_layers",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "attention.temperature_length",
    "attention.temperature_scale",
    "attention.value_length_mla",
    "embedding_length_out",
    "expert_count",
    "expert_feed_forward_length",
    "expert_gating_func",
    "expert_group_by_best",  // of checkpoints, see their README
    "expert_group_count",
    "expert_group_used_count",
    "expert_shared_count",
    "expert_shared_feed_forward_length",
    "expert_used_count",
    "expert_weights_norm",
    "expert_weights_scale",
    "interleave_moe_layer_step",
    "leading_dense_block_count",
    "moe_every_n_layers",
    "nextn_predict_layers",
    "pooling_type",
    "rope.dimension_sections",
    "rope.freq_base_swa",
    "rope.scaling.alpha",
    "rope.scaling.attn_factor",  // and the others: of YaRN, in files that are scaled otherwise
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_log_multiplier",
    "rope.scaling.yarn_truncate",  // of checkpoints, see their README
    "tensor_data_layout",
    "use_parallel_residual",
    "vocab_size",
    "vocabulary_size",
};

}  // namespace

bool is_known_unused_key(std::string_view key) noexcept {
  return std::find(names.begin(), names.end(), key) != names.end();
}

}  // namespace millrace
