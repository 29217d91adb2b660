// A model family is data: which shared blocks its layers are made of, which tensors they need, and
// which metadata the family overrides. One file per family beside this one; registry.h finds it by
// general.architecture. A field that a family does not name has the plainest value.
#pragma once

#include <cstdint>

#include "kernels/kernel_table.h"

namespace millrace {

// How a layer looks back at earlier positions.
enum class AttentionKind : std::uint8_t {
  gqa,  // keys and values per KV head (blocks/attention_gqa.h)
  mla,  // one compressed latent for all heads (blocks/attention_mla.h)
  // one row of keys and values, of the last positions, and pooled rows of older ones
  compressed,  // (blocks/attention_compressed.h)
};

// Layers that keep a state of fixed size instead of keys and values (blocks/delta_net.h): all but
// each full_attention_interval-th. Their value heads share key heads: head j takes key head j / r
// (r value heads for each key head), or j mod the number of key heads.
enum class DeltaNets : std::uint8_t { none, grouped_heads, tiled_heads };

// How rotary pairs lie in a head: (2i, 2i+1), or (i, i + rotary/2).
enum class RopeKind : std::uint8_t { norm, neox };

// Which layers see only the last attention.sliding_window positions.
enum class SlidingLayers : std::uint8_t { none, even, all };

enum class Presence : std::uint8_t { never, optional, required };

// RMS norm of q and k before RoPE: attn_q_norm / attn_k_norm.
enum class QkNorm : std::uint8_t {
  none,
  per_head,   // over each head: weights of head_dim
  whole_row,  // over all heads of a token together: weights of heads x head_dim
};

// From router logits z to probabilities, and what is weighted.
enum class Gating : std::uint8_t {
  softmax,         // P = softmax(z) over all experts; the weights are the chosen P
  sigmoid,         // P = sigmoid(z); the weights are the chosen P, without the selection bias
  softmax_chosen,  // chosen by z; the weights are the softmax over the chosen z
  sqrt_softplus,   // P = sqrt(log(1 + exp(z))); as sigmoid
};

// Whether the chosen weights are divided by their sum.
enum class WeightNorm : std::uint8_t { never, always, by_key };

// Which metadata key holds the width of an expert.
enum class ExpertWidth : std::uint8_t {
  feed_forward_length,         // the dense key serves the experts too (Mixtral)
  expert_feed_forward_length,  // required key
  either,                      // the experts' key, or else the dense one
  either_shared,  // the experts' key, or else the dense one over the experts used (qwen2moe)
};

// The expert that every token takes beside the routed ones: ffn_*_shexp.
enum class SharedExpert : std::uint8_t {
  none,
  gated,    // weighted by sigmoid(ffn_gate_inp_shexp · x); its own key for the width
  counted,  // expert_shared_count times as wide as a routed one, added as it is
};

struct FamilySpec {
  const char* architecture;  // general.architecture
  bool proven;  // logits checked against an independent engine's; else "unverified" is said at load

  AttentionKind attention = AttentionKind::gqa;
  RopeKind rope = RopeKind::neox;
  SlidingLayers sliding = SlidingLayers::none;
  DeltaNets delta_nets = DeltaNets::none;
  bool output_gate = false;  // attn_q has, behind each head's query, a gate of its output
  QkNorm qk_norm = QkNorm::none;
  Presence qk_norm_presence = Presence::required;  // where qk_norm is not none
  Presence qkv_bias = Presence::never;
  Presence output_bias = Presence::never;
  Presence sinks = Presence::never;  // attn_sinks: a logit per head without a value
  bool rotary_is_head = false;       // rope.dimension_count must equal the head size

  const char* ffn_norm =
      "ffn_norm";                  // the norm in front of the FFN, without "blk.N." and ".weight"
  SwigluClamp swiglu = {0, 1, 0};  // limit 0: plain silu(gate) * up; keys swiglu_clamp_* win
  Presence dense_bias = Presence::never;  // of dense FFNs

  // required: a file without experts is malformed; optional: dense when expert_count is 0.
  Presence experts = Presence::never;
  ExpertWidth expert_width = ExpertWidth::expert_feed_forward_length;
  SharedExpert shared = SharedExpert::none;
  Presence router_bias = Presence::never;     // ffn_gate_inp.bias, part of the logits
  Presence selection_bias = Presence::never;  // exp_probs_b.bias, for the choice alone
  Presence expert_bias = Presence::never;     // ffn_*_exps.bias, one row per expert
  Gating gating = Gating::softmax;
  bool gating_by_key = false;  // expert_gating_func wins where it is present and not 0
  bool hash_layers = false;    // hash_layer_count layers choose experts by token (ffn_gate_tid2eid)
  // Files without expert_gating_func and with one of these block counts mean sigmoid (0: none).
  std::uint32_t sigmoid_block_counts[2] = {0, 0};
  WeightNorm weight_norm = WeightNorm::never;

  bool untied = false;  // a file without output.weight is damaged, its head is not the embedding

  bool streams = false;          // hyper-connections instead of one residual (blocks/residual.h)
  bool nextn_by_tensor = false;  // nextn_predict_layers holds only where nextn.eh_proj exists
};

}  // namespace millrace
