// qwen35moe: Qwen3.5-35B-A3B, 122B-A10B, 397B-A17B. As qwen3next, but the converter has put value
// heads in another order: head j takes key head j mod their number. Rotations are in sections for
// images; for text all sections have one position, which is the plain form.
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec qwen35moe_family = {
    .architecture = "qwen35moe",
    .proven = true,
    .delta_nets = DeltaNets::tiled_heads,
    .output_gate = true,
    .qk_norm = QkNorm::per_head,
    .ffn_norm = "post_attention_norm",
    .experts = Presence::required,
    .shared = SharedExpert::gated,
    .weight_norm = WeightNorm::always,
};

}  // namespace millrace
