#include "model/format/safetensors/rope_keys.h"

#include <fmt/format.h>

#include <numbers>
#include <optional>
#include <string>
#include <vector>

#include "kernels/math.h"
#include "kernels/rope_table.h"
#include "runtime/base/log.h"

namespace millrace {

namespace {

// Newer files have base, share and scaling in rope_parameters, older ones the scaling in
// rope_scaling and the rest at the top.
std::optional<ConfigReader> scaling_of(const ConfigReader& config) {
  if (auto newer = config.below("rope_parameters")) return newer;
  return config.below("rope_scaling");
}

Result<std::optional<double>> real_of(const ConfigReader& config, const char* key) {
  if (const auto newer = config.below("rope_parameters"); newer && newer->find(key) != nullptr)
    return newer->real(key);
  return config.real(key);
}

Result<std::string> kind_of(const ConfigReader& scaling) {
  MILLRACE_ASSIGN(std::string kind, scaling.text("rope_type"));
  if (kind.empty()) {
    MILLRACE_ASSIGN(kind, scaling.text("type"));
  }
  return kind.empty() ? std::string("default") : kind;
}

Status copy_real(const ConfigReader& scaling, MetadataWriter& metadata, const char* from,
                 const char* to) {
  MILLRACE_ASSIGN(const auto value, scaling.real(from));
  if (value) metadata.set_own(to, *value);
  return {};
}

Status yarn_keys(const ConfigReader& scaling, MetadataWriter& metadata) {
  MILLRACE_ASSIGN(const double factor, scaling.need_real("factor"));
  metadata.set_own(".rope.scaling.type", std::string("yarn"));
  metadata.set_own(".rope.scaling.factor", factor);
  MILLRACE_ASSIGN(const auto original, scaling.number("original_max_position_embeddings"));
  if (original) metadata.set_own(".rope.scaling.original_context_length", std::uint64_t{*original});
  MILLRACE_TRY(copy_real(scaling, metadata, "beta_fast", ".rope.scaling.yarn_beta_fast"));
  MILLRACE_TRY(copy_real(scaling, metadata, "beta_slow", ".rope.scaling.yarn_beta_slow"));
  MILLRACE_ASSIGN(const bool truncate, scaling.flag("truncate", true));
  metadata.set_own(".rope.scaling.yarn_truncate", truncate);
  // A given magnitude replaces 1 + 0.1 ln(factor), which the key's factor multiplies.
  MILLRACE_ASSIGN(const auto magnitude, scaling.real("attention_factor"));
  if (magnitude && factor > 0)
    metadata.set_own(".rope.scaling.yarn_attn_factor", *magnitude / (1 + 0.1 * log_f64(factor)));
  return {};
}

// Llama 3: each pair's divisor, which converters write into a tensor.
Status llama3_keys(const ConfigReader& config, const ConfigReader& scaling,
                   MetadataWriter& metadata) {
  MILLRACE_ASSIGN(const double factor, scaling.need_real("factor"));
  MILLRACE_ASSIGN(const double low, scaling.need_real("low_freq_factor"));
  MILLRACE_ASSIGN(const double high, scaling.need_real("high_freq_factor"));
  MILLRACE_ASSIGN(const double original, scaling.need_real("original_max_position_embeddings"));
  MILLRACE_ASSIGN(const auto base, real_of(config, "rope_theta"));
  MILLRACE_ASSIGN(const std::uint32_t width, config.need_number("hidden_size"));
  MILLRACE_ASSIGN(const std::uint32_t heads, config.need_number("num_attention_heads"));
  MILLRACE_ASSIGN(const std::uint32_t size,
                  config.number("head_dim", heads == 0 ? 0 : width / heads));
  constexpr std::uint32_t size_max = 4096;
  const double theta_base = base.value_or(10000);
  if (!(theta_base > 1) || size < 2 || !(factor > 0) || !(low > 0) || !(high > low) ||
      !(original > 0) || size > size_max)
    return scaling.bad("factor", "the numbers of this scaling do not make sense");
  std::vector<double> thetas(size / 2);
  rope_frequencies({.rotary = size / 2 * 2, .base = theta_base}, thetas.data());
  std::vector<double> divisors;
  for (const double theta : thetas) {
    const double length = 2 * std::numbers::pi / theta;
    if (length < original / high) {
      divisors.push_back(1);
    } else if (length > original / low) {
      divisors.push_back(factor);
    } else {
      const double smooth = (original / length - low) / (high - low);
      divisors.push_back(1 / ((1 - smooth) / factor + smooth));
    }
  }
  metadata.set_own(".rope.pair_factors", std::move(divisors));
  return {};
}

}  // namespace

Result<double> rotary_share(const ConfigReader& config) {
  MILLRACE_ASSIGN(const auto share, real_of(config, "partial_rotary_factor"));
  if (share && !(*share > 0 && *share <= 1))
    return config.bad("partial_rotary_factor",
                      fmt::format("{} is not above 0 and at most 1", *share));
  return share.value_or(1);
}

Status rope_keys(const ConfigReader& config, MetadataWriter& metadata) {
  MILLRACE_ASSIGN(const auto base, real_of(config, "rope_theta"));
  if (base) metadata.set_own(".rope.freq_base", *base);
  const auto scaling = scaling_of(config);
  if (!scaling) return {};
  MILLRACE_ASSIGN(const std::string kind, kind_of(*scaling));
  if (kind == "default" || kind == "none") return {};
  if (kind == "yarn") return yarn_keys(*scaling, metadata);
  if (kind == "llama3") return llama3_keys(config, *scaling, metadata);
  if (kind != "linear")
    return scaling->bad("rope_type", fmt::format("'{}' is not supported", printable(kind)),
                        ErrorCode::unsupported);
  MILLRACE_ASSIGN(const double factor, scaling->need_real("factor"));
  metadata.set_own(".rope.scaling.type", kind);
  metadata.set_own(".rope.scaling.factor", factor);
  return {};
}

Status yarn_multiplier_key(const ConfigReader& config, MetadataWriter& metadata) {
  const auto scaling = scaling_of(config);
  if (!scaling) return {};
  const Result<std::string> kind = kind_of(*scaling);
  if (!kind) return kind.error();
  if (kind.value() != "yarn") return {};
  MILLRACE_ASSIGN(const auto all, scaling->real("mscale_all_dim"));
  MILLRACE_ASSIGN(const auto scale, scaling->real("mscale"));
  if (all && scale && *all != *scale)
    return scaling->bad("mscale", fmt::format("{} differs from mscale_all_dim {}", *scale, *all),
                        ErrorCode::unsupported);
  if (all) metadata.set_own(".rope.scaling.yarn_log_multiplier", 0.1 * *all);
  return {};
}

}  // namespace millrace
