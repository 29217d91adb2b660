// glm4moe: GLM-4.5, 4.5-Air, 4.6, 4.7. Leading dense layers; half of each head rotates; some sizes
// norm q and k per head, others do not; sigmoid gating with a bias for the choice; a shared expert.
// block_count includes a NextN layer, which the main pass does not run.
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec glm4moe_family = {
    .architecture = "glm4moe",
    .proven = true,
    .qk_norm = QkNorm::per_head,
    .qk_norm_presence = Presence::optional,
    .qkv_bias = Presence::required,
    .ffn_norm = "post_attention_norm",
    .experts = Presence::required,
    .shared = SharedExpert::counted,
    .selection_bias = Presence::required,
    .gating = Gating::sigmoid,
    .gating_by_key = true,
    .weight_norm = WeightNorm::by_key,
    .untied = true,
};

}  // namespace millrace
