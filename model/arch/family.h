// A model family is data: which shared blocks its layers are made of, which tensors they need, and
// which metadata the family overrides. One file per family beside this one; registry.h finds it by
// general.architecture.
#pragma once

#include <cstdint>

namespace millrace {

// How rotary pairs lie in a head: (2i, 2i+1), or (i, i + rotary/2).
enum class RopeKind : std::uint8_t { norm, neox };

enum class QkNorm : std::uint8_t {
  none,
  per_head,  // RMS over each head of q and k, before RoPE: attn_q_norm / attn_k_norm of head_dim
};

enum class Presence : std::uint8_t { never, optional, required };

// From router logits z to probabilities, and what is weighted.
enum class Gating : std::uint8_t {
  softmax,  // P = softmax(z) over all experts; the weights are the chosen P
};

// Whether the chosen weights are divided by their sum.
enum class WeightNorm : std::uint8_t { never, always, by_key };

// Which metadata key holds the width of an expert.
enum class ExpertWidth : std::uint8_t {
  feed_forward_length,         // the dense key serves the experts too (Mixtral)
  expert_feed_forward_length,  // required key
};

struct FamilySpec {
  const char* architecture;  // general.architecture
  bool proven;  // logits checked against an independent engine's; else "unverified" is said at load
  RopeKind rope;
  QkNorm qk_norm;
  Presence qkv_bias;
  Presence output_bias;
  bool rotary_is_head;   // rope.dimension_count must equal the head size
  const char* ffn_norm;  // name of the norm in front of the FFN, without "blk.N." and ".weight"
  Presence experts;      // required: a file without experts is malformed; optional: dense when
                         // expert_count is 0
  ExpertWidth expert_width;
  Gating gating;
  WeightNorm weight_norm;
};

}  // namespace millrace
