#include "model/hparams_compressed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/limits.h"

namespace millrace {

namespace {

constexpr std::uint32_t rank_max = 1u << 16;
constexpr std::uint32_t index_dim_max = 4096;
constexpr std::uint32_t index_heads_max = 1024;
constexpr std::uint32_t index_top_k_max = 1u << 16;
constexpr std::uint32_t iterations_max = 1000;

// The scores of old rows, where a layer has any that are chosen from.
Status read_indexer(const KeyReader& keys, Hparams& h) {
  Compression& c = h.compression;
  if (std::count(c.ratios.begin(), c.ratios.end(), Compression::indexed_ratio) == 0) return {};
  MILLRACE_ASSIGN(c.index_heads,
                  keys.number("attention.indexer.head_count", 1, index_heads_max, 0));
  MILLRACE_ASSIGN(c.index_dim, keys.number("attention.indexer.key_length", 1, index_dim_max, 0));
  MILLRACE_ASSIGN(c.index_top_k, keys.number("attention.indexer.top_k", 1, index_top_k_max, 0));
  if (c.index_dim < h.rotary)
    return keys.bad("attention.indexer.key_length",
                    fmt::format("{} for a rotation of {} dimensions", c.index_dim, h.rotary));
  return {};
}

Status read_output_groups(const KeyReader& keys, Hparams& h) {
  Compression& c = h.compression;
  MILLRACE_ASSIGN(c.output_groups,
                  keys.number("attention.output_group_count", 1, h.heads_max(), 0));
  MILLRACE_ASSIGN(c.output_rank, keys.number("attention.output_lora_rank", 1, rank_max, 0));
  if (h.heads[0] % c.output_groups != 0)
    return keys.bad(
        "attention.output_group_count",
        fmt::format("{} does not divide attention.head_count {}", c.output_groups, h.heads[0]));
  return {};
}

Status check_heads(const KeyReader& keys, const Hparams& h) {
  if (std::count(h.heads.begin(), h.heads.end(), h.heads[0]) != h.layers)
    return keys.bad("attention.head_count", "differs between layers");
  if (h.kv_heads_max() != 1)
    return keys.bad("attention.head_count_kv",
                    fmt::format("{}: all heads share one row", h.kv_heads_max()));
  if (h.value_dim != h.head_dim)
    return keys.bad("attention.value_length",
                    fmt::format("{} for keys of {}: a row is both", h.value_dim, h.head_dim));
  if (h.windows.empty() || h.windows[0] == 0)
    return keys.bad("attention.sliding_window", "missing or 0");
  return {};
}

}  // namespace

Status read_compression(const KeyReader& keys, Hparams& h) {
  MILLRACE_TRY(check_heads(keys, h));
  Compression& c = h.compression;
  MILLRACE_ASSIGN(h.q_latent, keys.number("attention.q_lora_rank", 1, rank_max, 0));
  MILLRACE_ASSIGN(c.ratios, keys.per_layer("attention.compress_ratios", h.layers, 0,
                                           limits::compress_ratio_max, {}));
  c.rope = h.rope;
  MILLRACE_ASSIGN(c.rope.base, keys.real("attention.compress_rope_freq_base",
                                         static_cast<float>(h.rope.base), false));
  if (c.rope.base <= 1)
    return keys.bad("attention.compress_rope_freq_base",
                    fmt::format("{} is not above 1", c.rope.base));
  h.rope = RopeScaling{.rotary = h.rope.rotary, .base = h.rope.base};
  h.magnitude = 1;
  MILLRACE_TRY(read_indexer(keys, h));
  return read_output_groups(keys, h);
}

Status read_streams(const KeyReader& keys, const FamilySpec& family, Hparams& h) {
  if (!family.streams) return {};
  MILLRACE_ASSIGN(h.streams.count,
                  keys.number("hyper_connection.count", 2, limits::streams_max, 0));
  MILLRACE_ASSIGN(h.streams.iterations,
                  keys.number("hyper_connection.sinkhorn_iterations", 1, iterations_max, 20));
  MILLRACE_ASSIGN(h.streams.epsilon, keys.real("hyper_connection.epsilon", 1e-6F, false));
  if (h.streams.epsilon < 0 || h.streams.epsilon > 1)
    return keys.bad("hyper_connection.epsilon", "outside 0 to 1");
  return {};
}

Status read_clamps(const KeyReader& keys, const FamilySpec& family, Hparams& h) {
  if (family.swiglu.limit > 0) h.expert_clamp.assign(h.layers, family.swiglu);
  h.shared_clamp = h.expert_clamp;
  if (h.attention != AttentionKind::compressed) return {};
  const auto read = [&](const char* key, std::vector<SwigluClamp>& clamps) -> Status {
    MILLRACE_ASSIGN(const std::vector<float> limits, keys.reals_per_layer(key, h.layers));
    if (limits.empty()) return {};
    clamps.clear();
    for (const float limit : limits) {
      if (limit < 0) return keys.bad(key, fmt::format("{} is negative", limit));
      clamps.push_back({.limit = limit, .slope = 1, .offset = 0});
    }
    return {};
  };
  MILLRACE_TRY(read("swiglu_clamp_exp", h.expert_clamp));
  h.shared_clamp = h.expert_clamp;
  return read("swiglu_clamp_shexp", h.shared_clamp);
}

}  // namespace millrace
