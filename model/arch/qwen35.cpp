// qwen35: Qwen3.5, dense. Layers of qwen35moe with a plain FFN.
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec qwen35_family = {
    .architecture = "qwen35",
    .proven = false,
    .delta_nets = DeltaNets::tiled_heads,
    .output_gate = true,
    .qk_norm = QkNorm::per_head,
    .ffn_norm = "post_attention_norm",
};

}  // namespace millrace
