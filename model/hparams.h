// The checked sizes of a model, read from its metadata. Plain data after read_hparams().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/arch/family.h"
#include "model/format/checkpoint.h"
#include "runtime/base/result.h"

namespace millrace {

struct RopeScaling {
  enum class Type : std::uint8_t { none, linear, yarn };
  Type type = Type::none;
  float factor = 1;  // frequencies are divided by it
  std::uint32_t original_context = 0;
  float extrapolation = 0;     // YaRN ext_factor
  float attention_factor = 1;  // YaRN magnitude override
  float beta_fast = 32;
  float beta_slow = 1;
};

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
  std::uint32_t rotary = 0;  // rotated dimensions of a head
  float rope_base = 10000;
  RopeScaling rope_scaling;
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
