// qwen3next: Qwen3-Next-80B-A3B. Gated delta nets with full attention in each fourth layer, whose
// outputs are gated too; a quarter of a head rotates; every layer is MoE with a shared expert.
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec qwen3next_family = {
    .architecture = "qwen3next",
    .proven = false,
    .delta_nets = DeltaNets::grouped_heads,
    .output_gate = true,
    .qk_norm = QkNorm::per_head,
    .ffn_norm = "post_attention_norm",
    .experts = Presence::required,
    .shared = SharedExpert::gated,
    .weight_norm = WeightNorm::always,
};

}  // namespace millrace
