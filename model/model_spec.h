// ModelSpec: a model as the engine sees it before any weight is read: checked sizes, where each
// trunk matrix and vector lies, where each expert lies. Built once from a Checkpoint; then
// read-only, any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/arch/family.h"
#include "model/expert_extents.h"
#include "model/format/checkpoint.h"
#include "model/hparams.h"
#include "model/tensor.h"
#include "model/tensor_finder.h"
#include "runtime/base/result.h"

namespace millrace {

// Large trunk matrices of a layer, pinned or streamed.
enum class MatrixRole : std::uint8_t {
  attn_q,  // MLA: of queries without a latent
  attn_k,
  attn_v,
  attn_output,  // of delta nets too; compressed attention: from all groups' values (attn_output_b)
  attn_output_a,    //                       to them, one group's rows below the other's
  attn_q_a,         // MLA, compressed attention: to the queries' latent
  attn_q_b,         //                            and from it to the heads
  attn_kv_a,        // MLA: to the latent of keys and values, and the rotated key; else to their row
  attn_kv_b,        //      from it to each head's keys, then values; or in two halves:
  attn_k_b,         //      keys, transposed per head
  attn_v_b,         //      values
  compressor_kv,    // pooled rows: what is pooled
  compressor_gate,  //              and its scores
  index_kv,         // the same for the rows by which rows are found
  index_gate,
  index_q,        // from the queries' latent to the heads that look for rows
  index_weights,  // of these heads
  streams_attn,   // hyper-connections: mixing coefficients around attention
  streams_ffn,    //                    and around the FFN
  delta_qkv,      // gated delta nets: to queries, keys and values,
  delta_gate,     //  and to the gates of their outputs; older files have both in one:
  delta_in,       //  per key head q, k, then its value heads' v, then their gates
  delta_beta,     //  to the heads' write strengths
  delta_alpha,    // and decays; or both in one:
  delta_ba,       // per key head its value heads' strengths, then their decays
  router,
  ffn_gate,  // of the dense FFN, or of the shared expert: a layer has at most one
  ffn_up,
  ffn_down,
};
inline constexpr std::size_t matrix_role_count = 29;

// Small vectors of a layer: decoded to float32 and always in memory.
enum class VectorRole : std::uint8_t {
  attn_norm,
  attn_q_bias,
  attn_k_bias,
  attn_v_bias,
  attn_output_bias,
  attn_q_norm,
  attn_k_norm,
  attn_q_a_norm,
  attn_kv_a_norm,
  attn_sinks,
  compressor_position,  // added to the scores: a row per position of a block
  compressor_norm,
  index_position,
  index_norm,
  streams_attn_base,
  streams_attn_scale,  // of pre, post and the mixing matrix
  streams_ffn_base,
  streams_ffn_scale,
  delta_conv,   // taps x channels: in memory one tap's weights follow another's, in files channels'
  delta_dt,     // per value head: bias of the decay,
  delta_decay,  // and its negative factor
  delta_norm,
  ffn_norm,
  ffn_gate_bias,
  ffn_up_bias,
  ffn_down_bias,
  router_bias,
  selection_bias,
  shared_gate,       // weights of the scalar that the shared expert is multiplied by
  expert_gate_bias,  // one row per expert
  expert_up_bias,
  expert_gate_up_bias,  // one row per expert: gate, then up
  expert_down_bias,
  expert_gate_scale,  // one factor per expert, of the products of these matrices
  expert_up_scale,
  expert_gate_up_scale,  // the same for gate and up
  expert_down_scale,
};
inline constexpr std::size_t vector_role_count = 37;

struct LayerSpec {
  std::array<std::optional<MatrixExtent>, matrix_role_count> matrices;
  std::array<std::optional<MatrixExtent>, vector_role_count> vectors;  // one row each
  // A row of expert ids (I32) per token, for layers whose experts follow from the token alone.
  std::optional<MatrixExtent> hash_table;
  bool experts = false;  // MoE layer (router present, perhaps a shared expert); else dense FFN

  const std::optional<MatrixExtent>& matrix(MatrixRole role) const {
    return matrices[static_cast<std::size_t>(role)];
  }
  const std::optional<MatrixExtent>& vector(VectorRole role) const {
    return vectors[static_cast<std::size_t>(role)];
  }
};

// What makes one row of a token's streams in front of the head.
struct OutputStreams {
  MatrixExtent weights;  // streams rows of streams x width
  MatrixExtent base;     // one value per stream
  MatrixExtent scale;    // one value
};

struct ModelSpec {
  const FamilySpec* family = nullptr;
  Hparams hparams;
  std::vector<std::string> files;  // paths; MatrixExtent::file indexes them
  std::vector<LayerSpec> layers;
  ExpertExtents experts;   // empty rows for dense layers
  MatrixExtent embedding;  // token_embd: a row per token
  MatrixExtent head;       // output, or the embedding when tied; exactly `vocabulary` rows
  bool tied_head = false;
  MatrixExtent output_norm;
  std::optional<MatrixExtent> rope_factors;  // rope_freqs: rotary / 2 divisors
  std::optional<OutputStreams> output_streams;

  UnusedTensors unused;                      // of the file, that take no part
  std::vector<std::string> missing_factors;  // of experts, in some layers only: sentences

  // Whether an independent engine's logits were compared for this architecture.
  bool verified() const noexcept { return family->proven; }
  // What a user is to know about the file before trusting its answers: "unverified", what takes no
  // part. Sentences without the file's name, printable; for the log, reports and inspection.
  std::vector<std::string> notes() const;

  std::uint64_t expert_bytes() const noexcept;  // of the largest expert; 0 if dense
  std::uint64_t trunk_bytes() const noexcept;   // everything but the routed experts
};

// `format` errors name file and tensor: missing, wrong shape; `unsupported`: unknown architecture,
// a type without kernels, a tensor that would change the result but is not understood (biases or
// scales of known matrices). The notes are logged.
Result<ModelSpec> read_model_spec(const Checkpoint& checkpoint);

}  // namespace millrace
