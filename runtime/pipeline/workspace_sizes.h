// The sizes of BatchWalk's buffers, in one place for the constructor and for the plan. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "model/blocks/activations.h"
#include "model/blocks/attention_gqa.h"
#include "model/model_spec.h"

namespace millrace {

struct WorkspaceSizes {
  std::size_t tokens, workers, width, q_columns, k_columns, v_columns, out_columns;
  std::size_t gather_rows;  // tokens of one expert that go through its products together
  std::size_t hidden_rows, hidden_columns, up_floats, logits_floats;
  std::size_t choices;  // (token, rank) pairs
  std::size_t experts, rotary_pairs;

  WorkspaceSizes(const ModelSpec& spec, std::size_t tokens_max, unsigned worker_count) {
    const Hparams& h = spec.hparams;
    constexpr std::size_t gather_rows_max = 128;
    constexpr std::size_t logits_rows_max = 16;
    tokens = tokens_max;
    workers = worker_count;
    width = h.width;
    experts = h.experts;
    rotary_pairs = h.rotary / 2;
    q_columns = std::size_t{h.heads_max()} * h.head_dim;
    k_columns = std::size_t{h.kv_heads_max()} * h.head_dim;
    v_columns = std::size_t{h.kv_heads_max()} * h.value_dim;
    out_columns = std::size_t{h.heads_max()} * h.value_dim;
    gather_rows = std::min(tokens, gather_rows_max);
    choices = tokens * h.experts_used;
    const std::size_t dense = *std::max_element(h.dense_width.begin(), h.dense_width.end());
    hidden_rows = h.experts > 0 ? choices : tokens;
    hidden_columns = h.experts > 0 ? h.expert_width : dense;
    up_floats = h.experts > 0 ? workers * gather_rows * h.expert_width : tokens * dense;
    logits_floats = std::min(tokens, logits_rows_max) * h.vocabulary;
  }

  AttentionScratch attention() const {
    return AttentionScratch(tokens, q_columns, k_columns, v_columns, out_columns, workers,
                            attention_scratch_floats());
  }

  std::uint64_t total_bytes() const noexcept {
    std::uint64_t sum =
        2 * tokens * width * sizeof(float) + 2 * tokens * rotary_pairs * sizeof(float);
    sum +=
        ActivationRows::bytes(tokens, width) + ActivationRows::bytes(hidden_rows, hidden_columns);
    sum += AttentionScratch::bytes(tokens, q_columns, k_columns, v_columns, out_columns, workers,
                                   attention_scratch_floats());
    sum += (up_floats + logits_floats + tokens * experts) * sizeof(float);
    sum += choices * (width * sizeof(float) + 4 * sizeof(std::uint32_t));
    if (experts > 0) sum += workers * ActivationRows::bytes(gather_rows, width);
    return sum;
  }
};

}  // namespace millrace
