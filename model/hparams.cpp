#include "model/hparams.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/limits.h"
#include "runtime/base/log.h"

namespace millrace {

std::uint32_t Hparams::kv_heads_max() const noexcept {
  return *std::max_element(kv_heads.begin(), kv_heads.end());
}

std::uint32_t Hparams::heads_max() const noexcept {
  return *std::max_element(heads.begin(), heads.end());
}

namespace {

// Reads "<architecture>.<key>" values with bounds; every failure names file and key.
class KeyReader {
 public:
  KeyReader(const Checkpoint& checkpoint, const char* architecture)
      : checkpoint_(checkpoint), prefix_(std::string(architecture) + ".") {}

  Error bad(std::string_view key, std::string_view cause,
            ErrorCode code = ErrorCode::format) const {
    return Error{code, fmt::format("{}: metadata key {}{}: {}", checkpoint_.display_path(), prefix_,
                                   key, cause)};
  }

  // Missing: `fallback`, or an error when the fallback is 0.
  Result<std::uint32_t> number(std::string_view key, std::uint32_t low, std::uint32_t high,
                               std::uint32_t fallback) const {
    std::uint32_t value = fallback;
    MILLRACE_ASSIGN(const bool present, checkpoint_.has_u32(prefix_ + std::string(key), value));
    if (!present && fallback == 0 && low > 0) return bad(key, "missing");
    if (value < low || value > high)
      return bad(key, fmt::format("{} is outside {} to {}", value, low, high));
    return value;
  }

  Result<float> real(std::string_view key, float fallback, bool required) const {
    float value = fallback;
    MILLRACE_ASSIGN(const bool present, checkpoint_.has_f32(prefix_ + std::string(key), value));
    if (!present && required) return bad(key, "missing");
    if (!std::isfinite(value)) return bad(key, "not a finite number");
    return value;
  }

  Result<std::vector<std::uint32_t>> per_layer(std::string_view key, std::uint32_t layers,
                                               std::uint32_t low, std::uint32_t high,
                                               const std::vector<std::uint32_t>& fallback) const {
    std::vector<std::uint32_t> values;
    MILLRACE_ASSIGN(const bool present,
                    checkpoint_.has_u32_per_layer(prefix_ + std::string(key), layers, values));
    if (!present) {
      if (fallback.empty()) return bad(key, "missing");
      values = fallback;
    }
    for (std::uint32_t layer = 0; layer < layers; ++layer)
      if (values[layer] < low || values[layer] > high)
        return bad(
            key, fmt::format("{} (layer {}) is outside {} to {}", values[layer], layer, low, high));
    return values;
  }

  Result<std::string> text(std::string_view key) const {
    std::string value;
    MILLRACE_ASSIGN(const bool present, checkpoint_.has_string(prefix_ + std::string(key), value));
    static_cast<void>(present);
    return value;
  }

  const Checkpoint& checkpoint() const { return checkpoint_; }

 private:
  const Checkpoint& checkpoint_;
  std::string prefix_;
};

constexpr std::uint32_t width_max = 1u << 20;
constexpr std::uint32_t heads_max_allowed = 4096;
constexpr std::uint32_t head_dim_max = 4096;

Status read_attention(const KeyReader& keys, const FamilySpec& family, Hparams& h) {
  MILLRACE_ASSIGN(h.heads,
                  keys.per_layer("attention.head_count", h.layers, 1, heads_max_allowed, {}));
  MILLRACE_ASSIGN(h.kv_heads, keys.per_layer("attention.head_count_kv", h.layers, 1,
                                             heads_max_allowed, h.heads));
  for (std::uint32_t layer = 0; layer < h.layers; ++layer)
    if (h.heads[layer] % h.kv_heads[layer] != 0)
      return keys.bad("attention.head_count_kv",
                      fmt::format("{} heads (layer {}) are no multiple of {} KV heads",
                                  h.heads[layer], layer, h.kv_heads[layer]));
  const std::uint32_t head_default = std::max(1u, h.width / h.heads[0]);
  MILLRACE_ASSIGN(h.head_dim, keys.number("attention.key_length", 1, head_dim_max, head_default));
  MILLRACE_ASSIGN(h.value_dim,
                  keys.number("attention.value_length", 1, head_dim_max, head_default));
  MILLRACE_ASSIGN(h.rms_eps, keys.real("attention.layer_norm_rms_epsilon", 0, true));
  if (h.rms_eps < 0 || h.rms_eps > 1)
    return keys.bad("attention.layer_norm_rms_epsilon", "outside 0 to 1");
  MILLRACE_ASSIGN(h.rotary, keys.number("rope.dimension_count", 1, head_dim_max, h.head_dim));
  if (h.rotary % 2 != 0 || h.rotary > h.head_dim ||
      (family.rotary_is_head && h.rotary != h.head_dim))
    return keys.bad("rope.dimension_count",
                    fmt::format("{} does not suit heads of {} dimensions", h.rotary, h.head_dim));
  MILLRACE_ASSIGN(const float base, keys.real("rope.freq_base", 10000, false));
  if (base <= 1) return keys.bad("rope.freq_base", fmt::format("{} is not above 1", base));
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
  if (!(h.rope.beta_fast > 0)) return keys.bad("rope.scaling.yarn_beta_fast", "not positive");
  if (!(h.rope.beta_slow > 0)) return keys.bad("rope.scaling.yarn_beta_slow", "not positive");
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
  if (family.expert_width == ExpertWidth::expert_feed_forward_length) {
    MILLRACE_ASSIGN(h.expert_width, keys.number("expert_feed_forward_length", 1, width_max, 0));
  } else {
    h.expert_width = h.dense_width[0];
    if (h.expert_width == 0) return keys.bad("feed_forward_length", "missing");
  }
  h.normalize_weights = family.weight_norm == WeightNorm::always;
  if (family.weight_norm == WeightNorm::by_key) {
    MILLRACE_ASSIGN(
        const bool present,
        keys.checkpoint().has_bool(std::string(family.architecture) + ".expert_weights_norm",
                                   h.normalize_weights));
    static_cast<void>(present);
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
  MILLRACE_ASSIGN(h.layers, keys.number("block_count", 1, limits::layers_max, 0));
  MILLRACE_ASSIGN(h.width, keys.number("embedding_length", 1, width_max, 0));
  MILLRACE_ASSIGN(h.context, keys.number("context_length", 1, limits::context_max, 0));
  MILLRACE_TRY(read_attention(keys, family, h));
  MILLRACE_TRY(read_rope_scaling(keys, h));
  MILLRACE_ASSIGN(h.dense_width, keys.per_layer("feed_forward_length", h.layers, 0, width_max,
                                                std::vector<std::uint32_t>(h.layers, 0)));
  MILLRACE_TRY(read_experts(keys, family, h));
  const auto* tokens = checkpoint.string_array("tokenizer.ggml.tokens");
  const std::uint32_t token_count =
      tokens == nullptr ? 0 : static_cast<std::uint32_t>(tokens->size());
  MILLRACE_ASSIGN(h.vocabulary, keys.number("vocab_size", 1, limits::vocabulary_max, token_count));
  if (token_count != 0) h.vocabulary = std::min(h.vocabulary, token_count);
  return h;
}

}  // namespace millrace
