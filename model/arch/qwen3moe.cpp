// qwen3moe: Qwen3-30B-A3B, 235B-A22B, Coder-480B, and the embedded model. Every layer is MoE; q and
// k are normed per head before RoPE; the head size comes from its key (heads x head size differs
// from the width in general).
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec qwen3moe_family = {
    .architecture = "qwen3moe",
    .proven = true,
    .qk_norm = QkNorm::per_head,
    .experts = Presence::required,
    .weight_norm = WeightNorm::always,
};

}  // namespace millrace
