// qwen2moe: Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B. Attention of qwen2; every layer is MoE, the chosen
// weights stay as the softmax gives them, and a shared expert is weighted by a sigmoid of its own.
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec qwen2moe_family = {
    .architecture = "qwen2moe",
    .proven = true,
    .qkv_bias = Presence::required,
    .experts = Presence::required,
    .expert_width = ExpertWidth::either_shared,
    .shared = SharedExpert::gated,
};

}  // namespace millrace
