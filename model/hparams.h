// The checked sizes of a model, read from its metadata. Plain data after read_hparams().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/rope_table.h"
#include "model/arch/family.h"
#include "model/format/checkpoint.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

// Attention over pooled rows of older positions (blocks/attention_compressed.h).
struct Compression {
  static constexpr std::uint32_t indexed_ratio = 4;  // blocks of this size overlap and are indexed

  std::vector<std::uint32_t> ratios;  // per layer: positions that make a row; 0: no such rows
  RopeScaling rope;                   // of the layers that have them
  std::uint32_t index_heads = 0, index_dim = 0;
  std::uint32_t index_top_k = 0;    // rows that a position looks at
  std::uint32_t output_groups = 1;  // of heads, each with its rows of attn_output_a
  std::uint32_t output_rank = 0;    // values of a group in front of attn_output_b

  std::uint32_t ratio(LayerIndex layer) const noexcept {
    return ratios.empty() ? 0 : ratios[layer];
  }
  bool indexed(LayerIndex layer) const noexcept { return ratio(layer) == indexed_ratio; }
  // Blocks whose positions are pooled into a row: overlapping ones take the block before too, with
  // values and scores of their own.
  std::uint32_t halves(LayerIndex layer) const noexcept { return indexed(layer) ? 2 : 1; }
};

// Hyper-connections (blocks/residual.h).
struct Streams {
  std::uint32_t count = 1;       // 1: a plain residual
  std::uint32_t iterations = 0;  // of the mixing matrix's balancing
  float epsilon = 0;

  std::uint32_t mix_rows() const noexcept { return count * (2 + count); }
};

// Sizes of the layers that are gated delta nets; all 0 in families without them.
struct DeltaSizes {
  std::uint32_t key_heads = 0, value_heads = 0;  // the latter a multiple of the former
  std::uint32_t key_dim = 0, value_dim = 0;      // of a head
  std::uint32_t taps = 0;                        // of the convolution, the current token included
  // The file has the value heads of a key head together, though the family tiles them: what a
  // converter would have put into another order.
  bool regrouped = false;
  std::uint32_t keys() const noexcept { return key_heads * key_dim; }
  std::uint32_t values() const noexcept { return value_heads * value_dim; }
  std::uint32_t channels() const noexcept { return 2 * keys() + values(); }
};

struct Hparams {
  std::string name;          // general.name, untrusted text
  std::uint32_t layers = 0;  // that run: block_count without the NextN layers at its end
  std::uint32_t nextn_layers = 0;
  std::uint32_t width = 0;       // embedding_length
  std::uint32_t vocabulary = 0;  // tokens; logits beyond it are never produced
  std::uint32_t context = 0;     // trained context

  AttentionKind attention = AttentionKind::gqa;
  std::vector<std::uint32_t> heads;     // per layer
  std::vector<std::uint32_t> kv_heads;  // per layer; MLA has one latent whatever this says
  std::uint32_t head_dim = 0;           // of q and k
  std::uint32_t value_dim = 0;
  std::uint32_t q_latent = 0;          // MLA: rank of the queries' latent, 0 where q has one matrix
  std::uint32_t kv_latent = 0;         // MLA: rank of the latent of keys and values
  std::vector<std::uint32_t> windows;  // per layer, positions seen; 0 all. Empty: all layers 0
  std::uint32_t attention_interval =
      0;  // each such layer attends, the others are delta nets; 0: all
  DeltaSizes delta;
  float attention_scale = 1;  // of the scores
  float clamp_qkv = 0;        // 0: none
  float rms_eps = 0;
  std::uint32_t rotary = 0;         // rotated dimensions of a head
  RopeScaling rope;                 // pair_factors unset: they are weights, or the next
  std::vector<float> pair_factors;  // divisors of theta where no tensor has them; empty: none
  bool split_pairs = false;  // rows of q and k: the firsts of all pairs of a head, then the seconds
  double magnitude = 1;      // of cosines and sines
  Compression compression;
  Streams streams;

  std::vector<std::uint32_t> dense_width;  // feed_forward_length per layer (0 where absent)
  std::uint32_t experts = 0;               // 0: dense
  std::uint32_t experts_used = 0;          // top-k
  std::uint32_t expert_width = 0;
  std::uint32_t shared_width = 0;   // of the expert that every token takes; 0: none
  std::uint32_t leading_dense = 0;  // layers in front that have a dense FFN
  Gating gating = Gating::softmax;
  std::uint32_t groups = 1;  // of experts; only those of the best `groups_used` may be chosen
  std::uint32_t groups_used = 1;
  bool group_by_best = false;  // a group counts by its best score, not by its two best
  bool normalize_weights = false;
  float weights_scale = 1;
  std::uint32_t hash_layers = 0;  // in front, whose experts follow from the token's id alone
  std::vector<SwigluClamp> expert_clamp, shared_clamp;  // per layer; empty, or limit 0: none

  // Of the file's keys under the architecture's name, those that nothing read (untrusted texts).
  std::vector<std::string> unknown_keys;

  std::uint32_t kv_heads_max() const noexcept;
  std::uint32_t heads_max() const noexcept;
  std::uint32_t dense_width_max() const noexcept;  // of the layers with a dense FFN
  std::uint32_t window(LayerIndex layer) const noexcept {
    return windows.empty() ? 0 : windows[layer];
  }
  bool delta_net(LayerIndex layer) const noexcept {
    return attention_interval > 0 && (layer + 1) % attention_interval != 0;
  }
  bool moe(LayerIndex layer) const noexcept { return experts > 0 && layer >= leading_dense; }
  bool hashed(LayerIndex layer) const noexcept { return moe(layer) && layer < hash_layers; }
  std::uint32_t nope() const noexcept { return head_dim - rotary; }  // what is not rotated
  // Null: none. The pointer is into this object.
  static const SwigluClamp* clamp(const std::vector<SwigluClamp>& clamps,
                                  LayerIndex layer) noexcept {
    return clamps.empty() || clamps[layer].limit == 0 ? nullptr : &clamps[layer];
  }
};

// Reads and checks every number that the family needs (`format` errors name file and key).
Result<Hparams> read_hparams(const Checkpoint& checkpoint, const FamilySpec& family);

}  // namespace millrace
