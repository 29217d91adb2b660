#include "model/hparams.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/math.h"
#include "model/hparams_compressed.h"
#include "model/key_reader.h"
#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace millrace {

std::uint32_t Hparams::kv_heads_max() const noexcept {
  return *std::max_element(kv_heads.begin(), kv_heads.end());
}

std::uint32_t Hparams::heads_max() const noexcept {
  return *std::max_element(heads.begin(), heads.end());
}

std::uint32_t Hparams::dense_width_max() const noexcept {
  std::uint32_t widest = 0;
  for (LayerIndex layer = 0; layer < layers; ++layer)
    if (!moe(layer)) widest = std::max(widest, dense_width[layer]);
  return widest;
}

namespace {

constexpr std::uint32_t width_max = 1u << 20;
constexpr std::uint32_t heads_max_allowed = 4096;
constexpr std::uint32_t head_dim_max = 4096;
constexpr std::uint32_t latent_max = 1u << 16;
constexpr std::uint32_t shared_experts_max = 64;

Status read_layers(const Checkpoint& checkpoint, const KeyReader& keys, const FamilySpec& family,
                   Hparams& h) {
  MILLRACE_ASSIGN(const std::uint32_t blocks, keys.number("block_count", 1, limits::layers_max, 0));
  MILLRACE_ASSIGN(h.nextn_layers, keys.number("nextn_predict_layers", 0, limits::layers_max, 0));
  if (family.nextn_by_tensor && h.nextn_layers > 0) {
    const auto is_nextn = [&](std::uint32_t block) {
      return checkpoint.find_tensor(fmt::format("blk.{}.nextn.eh_proj.weight", block)) != nullptr;
    };
    h.layers = blocks;
    if (is_nextn(blocks)) return {};  // they lie behind those that are counted
    if (!is_nextn(blocks - 1)) h.nextn_layers = 0;
  }
  if (h.nextn_layers >= blocks)
    return keys.bad("nextn_predict_layers",
                    fmt::format("{} of {} blocks: none is left to run", h.nextn_layers, blocks));
  h.layers = blocks - h.nextn_layers;
  return {};
}

// Sizes of the heads as GQA reads them; MLA's keys win where both are there.
Status read_head_sizes(const KeyReader& keys, const FamilySpec& family, Hparams& h) {
  const std::uint32_t head_default = std::max(1u, h.width / h.heads[0]);
  MILLRACE_ASSIGN(h.head_dim, keys.number("attention.key_length", 1, head_dim_max, head_default));
  MILLRACE_ASSIGN(h.value_dim,
                  keys.number("attention.value_length", 1, head_dim_max, head_default));
  if (family.attention != AttentionKind::mla) return {};
  MILLRACE_ASSIGN(h.head_dim, keys.number("attention.key_length_mla", 1, head_dim_max, h.head_dim));
  MILLRACE_ASSIGN(h.value_dim,
                  keys.number("attention.value_length_mla", 1, head_dim_max, h.value_dim));
  MILLRACE_ASSIGN(h.q_latent, keys.number("attention.q_lora_rank", 0, latent_max, 0));
  MILLRACE_ASSIGN(h.kv_latent, keys.number("attention.kv_lora_rank", 1, latent_max, 0));
  return {};
}

Status read_attention(const KeyReader& keys, const FamilySpec& family, Hparams& h) {
  h.attention = family.attention;
  MILLRACE_ASSIGN(h.heads,
                  keys.per_layer("attention.head_count", h.layers, 1, heads_max_allowed, {}));
  MILLRACE_ASSIGN(h.kv_heads, keys.per_layer("attention.head_count_kv", h.layers, 1,
                                             heads_max_allowed, h.heads));
  for (std::uint32_t layer = 0; layer < h.layers; ++layer)
    if (h.heads[layer] % h.kv_heads[layer] != 0)
      return keys.bad("attention.head_count_kv",
                      fmt::format("{} heads (layer {}) are no multiple of {} KV heads",
                                  h.heads[layer], layer, h.kv_heads[layer]));
  // MLA's files count its latent as one KV head, or all heads that are made from it.
  for (std::uint32_t layer = 0; family.attention == AttentionKind::mla && layer < h.layers; ++layer)
    if (h.kv_heads[layer] != 1 && h.kv_heads[layer] != h.heads[layer])
      return keys.bad("attention.head_count_kv",
                      fmt::format("{} (layer {}): latent attention has 1 or as many as heads, {}",
                                  h.kv_heads[layer], layer, h.heads[layer]));
  MILLRACE_TRY(read_head_sizes(keys, family, h));
  MILLRACE_ASSIGN(h.rms_eps, keys.real("attention.layer_norm_rms_epsilon", 0, true));
  if (h.rms_eps < 0 || h.rms_eps > 1)
    return keys.bad("attention.layer_norm_rms_epsilon", "outside 0 to 1");
  MILLRACE_ASSIGN(h.clamp_qkv, keys.real("attention.clamp_kqv", 0, false));
  if (h.clamp_qkv < 0) return keys.bad("attention.clamp_kqv", "negative");
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    MILLRACE_ASSIGN(const float cap, keys.real(key, 0, false));
    if (cap != 0)
      return keys.bad(key, fmt::format("{} is not supported", cap), ErrorCode::unsupported);
  }
  if (family.sliding == SlidingLayers::none) return {};
  MILLRACE_ASSIGN(const std::uint32_t window,
                  keys.number("attention.sliding_window", 0, limits::context_max, 0));
  for (LayerIndex layer = 0; layer < h.layers; ++layer)
    h.windows.push_back(family.sliding == SlidingLayers::all || layer % 2 == 0 ? window : 0);
  return {};
}

// Layers that are gated delta nets, and their sizes.
Status read_delta_nets(const KeyReader& keys, const FamilySpec& family, Hparams& h) {
  if (family.output_gate && h.value_dim != h.head_dim)
    return keys.bad("attention.value_length",
                    fmt::format("{} beside a key_length of {}: the output's gates lie beside the "
                                "queries",
                                h.value_dim, h.head_dim));
  if (family.delta_nets == DeltaNets::none) return {};
  MILLRACE_ASSIGN(h.attention_interval,
                  keys.number("full_attention_interval", 1, limits::layers_max, 4));
  DeltaSizes& delta = h.delta;
  MILLRACE_ASSIGN(delta.key_heads, keys.number("ssm.group_count", 1, heads_max_allowed, 0));
  MILLRACE_ASSIGN(delta.value_heads, keys.number("ssm.time_step_rank", 1, heads_max_allowed, 0));
  MILLRACE_ASSIGN(delta.key_dim, keys.number("ssm.state_size", 1, head_dim_max, 0));
  MILLRACE_ASSIGN(const std::uint32_t values, keys.number("ssm.inner_size", 1, width_max, 0));
  MILLRACE_ASSIGN(delta.taps, keys.number("ssm.conv_kernel", 1, limits::conv_taps_max, 0));
  if (delta.value_heads % delta.key_heads != 0)
    return keys.bad("ssm.time_step_rank",
                    fmt::format("{} heads are no multiple of ssm.group_count {}", delta.value_heads,
                                delta.key_heads));
  if (values % delta.value_heads != 0)
    return keys.bad("ssm.inner_size", fmt::format("{} values for {} heads (ssm.time_step_rank)",
                                                  values, delta.value_heads));
  delta.value_dim = values / delta.value_heads;
  if (family.delta_nets == DeltaNets::tiled_heads) {
    MILLRACE_ASSIGN(delta.regrouped, keys.flag("ssm.grouped_heads"));
  }
  return {};
}

Status read_rope(const KeyReader& keys, const FamilySpec& family, Hparams& h) {
  MILLRACE_ASSIGN(h.rotary, keys.number("rope.dimension_count", 1, head_dim_max, h.head_dim));
  if (h.rotary % 2 != 0 || h.rotary > h.head_dim ||
      (family.rotary_is_head && h.rotary != h.head_dim) ||
      (family.attention == AttentionKind::mla && h.rotary == h.head_dim))
    return keys.bad("rope.dimension_count",
                    fmt::format("{} does not suit heads of {} dimensions", h.rotary, h.head_dim));
  MILLRACE_ASSIGN(const float base, keys.real("rope.freq_base", 10000, false));
  if (base <= 1) return keys.bad("rope.freq_base", fmt::format("{} is not above 1", base));
  MILLRACE_ASSIGN(h.split_pairs, keys.flag("rope.split_pairs"));
  MILLRACE_ASSIGN(h.pair_factors, keys.reals("rope.pair_factors"));
  if (!h.pair_factors.empty() && h.pair_factors.size() != h.rotary / 2)
    return keys.bad("rope.pair_factors",
                    fmt::format("{} entries for {} pairs", h.pair_factors.size(), h.rotary / 2));
  h.rope.rotary = h.rotary;
  h.rope.base = base;
  return {};
}

Status read_rope_scaling(const KeyReader& keys, Hparams& h) {
  MILLRACE_ASSIGN(const std::string type, keys.text("rope.scaling.type"));
  MILLRACE_ASSIGN(const float old_factor, keys.real("rope.scale_linear", 0, false));
  MILLRACE_ASSIGN(float factor, keys.real("rope.scaling.factor", old_factor, false));
  if (factor == 0 || type == "none") factor = 1;
  if (factor < 0) return keys.bad("rope.scaling.factor", "negative");
  if (type != "yarn" && type != "none" && type != "linear" && !type.empty())
    return keys.bad("rope.scaling.type", "'" + printable(type) + "' is not supported",
                    ErrorCode::unsupported);
  h.rope.factor = factor;
  h.rope.yarn = type == "yarn";
  if (!h.rope.yarn) return {};
  MILLRACE_ASSIGN(h.rope.original_context, keys.number("rope.scaling.original_context_length", 1,
                                                       limits::context_max, h.context));
  MILLRACE_ASSIGN(h.rope.extension, keys.real("rope.scaling.yarn_ext_factor", 1, false));
  MILLRACE_ASSIGN(const float attention, keys.real("rope.scaling.attn_factor", 1, false));
  MILLRACE_ASSIGN(h.rope.attention_factor,
                  keys.real("rope.scaling.yarn_attn_factor", attention, false));
  MILLRACE_ASSIGN(h.rope.beta_fast, keys.real("rope.scaling.yarn_beta_fast", 32, false));
  MILLRACE_ASSIGN(h.rope.beta_slow, keys.real("rope.scaling.yarn_beta_slow", 1, false));
  MILLRACE_ASSIGN(h.rope.truncate, keys.flag("rope.scaling.yarn_truncate", true));
  if (!(h.rope.beta_fast > 0)) return keys.bad("rope.scaling.yarn_beta_fast", "not positive");
  if (!(h.rope.beta_slow > 0)) return keys.bad("rope.scaling.yarn_beta_slow", "not positive");
  return {};
}

// How large cosines, sines and scores are. Under YaRN the rotations grow; MLA's files name instead
// a multiplier by which the scores grow, and then leave the rotations as they are.
Status read_scales(const KeyReader& keys, Hparams& h) {
  h.magnitude = rope_magnitude(h.rope);
  h.attention_scale = 1.0F / std::sqrt(static_cast<float>(h.head_dim));
  if (h.attention != AttentionKind::mla || !h.rope.yarn) return {};
  float multiplier = 0;
  MILLRACE_ASSIGN(const bool present,
                  keys.has_real("rope.scaling.yarn_log_multiplier", multiplier));
  if (!present) return {};
  const double growth = 1.0 + static_cast<double>(multiplier) * log_f64(h.rope.factor);
  h.magnitude = 1;
  h.attention_scale =
      static_cast<float>(growth * growth / std::sqrt(static_cast<double>(h.head_dim)));
  return {};
}

Status read_expert_widths(const KeyReader& keys, const FamilySpec& family, Hparams& h) {
  const std::uint32_t dense = h.dense_width[0];
  const auto dense_or_missing = [&](std::uint32_t width) -> Status {
    if (width == 0) return keys.bad("feed_forward_length", "missing");
    h.expert_width = width;
    return {};
  };
  switch (family.expert_width) {
    case ExpertWidth::feed_forward_length:
      MILLRACE_TRY(dense_or_missing(dense));
      break;
    case ExpertWidth::expert_feed_forward_length: {
      MILLRACE_ASSIGN(h.expert_width, keys.number("expert_feed_forward_length", 1, width_max, 0));
      break;
    }
    case ExpertWidth::either:
    case ExpertWidth::either_shared: {
      MILLRACE_ASSIGN(h.expert_width, keys.number("expert_feed_forward_length", 0, width_max, 0));
      const bool split = family.expert_width == ExpertWidth::either_shared;
      if (h.expert_width == 0)
        MILLRACE_TRY(dense_or_missing(split ? dense / h.experts_used : dense));
      break;
    }
  }
  if (family.shared == SharedExpert::gated) {
    MILLRACE_ASSIGN(h.shared_width,
                    keys.number("expert_shared_feed_forward_length", 1, width_max, dense));
  } else if (family.shared == SharedExpert::counted) {
    MILLRACE_ASSIGN(const std::uint32_t count,
                    keys.number("expert_shared_count", 0, shared_experts_max, 0));
    h.shared_width = count * h.expert_width;
  }
  return {};
}

Status read_gating(const KeyReader& keys, const FamilySpec& family, Hparams& h) {
  h.gating = family.gating;
  if (!family.gating_by_key) return {};
  const std::uint32_t blocks = h.layers + h.nextn_layers;
  for (const std::uint32_t count : family.sigmoid_block_counts)
    if (blocks == count) h.gating = Gating::sigmoid;
  MILLRACE_ASSIGN(const std::uint32_t function, keys.number("expert_gating_func", 0, 255, 0));
  switch (function) {
    case 0:
      return {};
    case 1:
      h.gating = Gating::softmax;
      return {};
    case 2:
      h.gating = Gating::sigmoid;
      return {};
    case 3:
      h.gating = Gating::softmax_chosen;
      return {};
    case 4:
      if (family.gating == Gating::sqrt_softplus) return {};
      [[fallthrough]];
    default:
      return keys.bad("expert_gating_func",
                      fmt::format("{} is not supported by {}", function, family.architecture),
                      ErrorCode::unsupported);
  }
}

Status read_groups(const KeyReader& keys, Hparams& h) {
  MILLRACE_ASSIGN(h.groups, keys.number("expert_group_count", 0, limits::experts_max, 0));
  h.groups = std::max(1u, h.groups);
  h.groups_used = h.groups;
  MILLRACE_ASSIGN(h.group_by_best, keys.flag("expert_group_by_best"));
  if (h.groups == 1) return {};
  if (h.experts % h.groups != 0)
    return keys.bad("expert_group_count",
                    fmt::format("{} groups of {} experts", h.groups, h.experts));
  MILLRACE_ASSIGN(h.groups_used, keys.number("expert_group_used_count", 1, h.groups, h.groups));
  if (h.groups_used * (h.experts / h.groups) < h.experts_used)
    return keys.bad("expert_group_used_count",
                    fmt::format("{} groups of {} experts are fewer than expert_used_count {}",
                                h.groups_used, h.experts / h.groups, h.experts_used));
  return {};
}

Status read_experts(const KeyReader& keys, const FamilySpec& family, Hparams& h) {
  MILLRACE_ASSIGN(h.experts, keys.number("expert_count", 0, limits::experts_max, 0));
  if (h.experts == 0) {
    if (family.experts == Presence::required) return keys.bad("expert_count", "missing or 0");
    return {};
  }
  if (family.experts == Presence::never)
    return keys.bad("expert_count", "this architecture has no experts");
  MILLRACE_ASSIGN(h.experts_used, keys.number("expert_used_count", 1, limits::experts_used_max, 0));
  if (h.experts_used > h.experts)
    return keys.bad("expert_used_count",
                    fmt::format("{} exceeds expert_count {}", h.experts_used, h.experts));
  MILLRACE_ASSIGN(h.leading_dense, keys.number("leading_dense_block_count", 0, h.layers, 0));
  MILLRACE_TRY(read_expert_widths(keys, family, h));
  MILLRACE_TRY(read_gating(keys, family, h));
  MILLRACE_TRY(read_groups(keys, h));
  if (family.hash_layers) {
    MILLRACE_ASSIGN(h.hash_layers, keys.number("hash_layer_count", 0, h.layers, 0));
  }
  h.normalize_weights = family.weight_norm == WeightNorm::always;
  if (family.weight_norm == WeightNorm::by_key) {
    MILLRACE_ASSIGN(h.normalize_weights, keys.flag("expert_weights_norm"));
  }
  MILLRACE_ASSIGN(h.weights_scale, keys.real("expert_weights_scale", 0, false));
  if (h.weights_scale == 0) h.weights_scale = 1;  // 0 stands for "no scaling"
  return {};
}

}  // namespace

Result<Hparams> read_hparams(const Checkpoint& checkpoint, const FamilySpec& family) {
  const KeyReader keys(checkpoint, family.architecture);
  Hparams h;
  MILLRACE_ASSIGN(const bool named, checkpoint.has_string("general.name", h.name));
  static_cast<void>(named);
  MILLRACE_TRY(read_layers(checkpoint, keys, family, h));
  MILLRACE_ASSIGN(h.width, keys.number("embedding_length", 1, width_max, 0));
  MILLRACE_ASSIGN(h.context, keys.number("context_length", 1, limits::context_max, 0));
  MILLRACE_TRY(read_attention(keys, family, h));
  MILLRACE_TRY(read_delta_nets(keys, family, h));
  MILLRACE_TRY(read_rope(keys, family, h));
  MILLRACE_TRY(read_rope_scaling(keys, h));
  MILLRACE_TRY(read_scales(keys, h));
  if (h.attention == AttentionKind::compressed) MILLRACE_TRY(read_compression(keys, h));
  MILLRACE_TRY(read_streams(keys, family, h));
  MILLRACE_ASSIGN(h.dense_width, keys.per_layer("feed_forward_length", h.layers, 0, width_max,
                                                std::vector<std::uint32_t>(h.layers, 0)));
  MILLRACE_TRY(read_experts(keys, family, h));
  MILLRACE_TRY(read_clamps(keys, family, h));
  const auto* tokens = checkpoint.string_array("tokenizer.ggml.tokens");
  const std::uint32_t token_count =
      tokens == nullptr ? 0 : static_cast<std::uint32_t>(tokens->size());
  bool sized = token_count > 0;
  if (!sized) {
    MILLRACE_ASSIGN(
        sized, checkpoint.has_u32(std::string(family.architecture) + ".vocab_size", h.vocabulary));
  }
  if (!sized)
    return Error{ErrorCode::format, fmt::format("{}: no tokenizer: tokenizer.ggml.tokens is "
                                                "missing, and so is {}.vocab_size",
                                                checkpoint.display_path(), family.architecture)};
  MILLRACE_ASSIGN(h.vocabulary, keys.number("vocab_size", 1, limits::vocabulary_max, token_count));
  if (h.vocabulary < token_count)
    return keys.bad("vocab_size",
                    fmt::format("{} for a tokenizer of {} tokens", h.vocabulary, token_count));
  if (token_count != 0) h.vocabulary = token_count;  // rows behind the tokens are padding
  h.unknown_keys = keys.unknown();
  return h;
}

}  // namespace millrace
