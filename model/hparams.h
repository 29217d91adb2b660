// The checked sizes of a model, read from its metadata. Plain data after read_hparams().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/rope_table.h"
#include "model/arch/family.h"
#include "model/format/checkpoint.h"
#include "runtime/base/result.h"

namespace millrace {

struct Hparams {
  std::string name;  // general.name, untrusted text
  std::uint32_t layers = 0;
  std::uint32_t width = 0;              // embedding_length
  std::uint32_t vocabulary = 0;         // tokens; logits beyond it are never produced
  std::uint32_t context = 0;            // trained context
  std::vector<std::uint32_t> heads;     // per layer
  std::vector<std::uint32_t> kv_heads;  // per layer
  std::uint32_t head_dim = 0;           // of q and k
  std::uint32_t value_dim = 0;
  float rms_eps = 0;
  std::uint32_t rotary = 0;                // rotated dimensions of a head
  RopeScaling rope;                        // pair_factors unset: they are weights
  std::vector<std::uint32_t> dense_width;  // feed_forward_length per layer (0 where absent)
  std::uint32_t experts = 0;               // 0: dense
  std::uint32_t experts_used = 0;          // top-k
  std::uint32_t expert_width = 0;
  bool normalize_weights = false;
  float weights_scale = 1;

  std::uint32_t kv_heads_max() const noexcept;
  std::uint32_t heads_max() const noexcept;
};

// Reads and checks every number that the family needs (`format` errors name file and key).
Result<Hparams> read_hparams(const Checkpoint& checkpoint, const FamilySpec& family);

}  // namespace millrace
