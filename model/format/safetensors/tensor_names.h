// Names of tensors in published checkpoints, as GGUF files name the same tensors. Pure.
#pragma once

#include <string>
#include <string_view>

namespace millrace {

// What stands behind the last dot in both worlds (".weight", ".bias") stays; scales keep their own
// suffix behind the translated base: "model.layers.3.self_attn.q_proj.weight_scale_inv" becomes
// "blk.3.attn_q.weight_scale_inv". Empty: nothing that we know. `ffn_norm`: the family's name of
// the norm in front of the FFN.
std::string gguf_tensor_name(std::string_view name, std::string_view ffn_norm);

// Whether a tensor belongs to a part that is never run here: vision, heads that predict further
// tokens, tables that follow from config.json.
bool is_unused_part(std::string_view name) noexcept;

}  // namespace millrace
