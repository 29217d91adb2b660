// deepseek2: DeepSeek-V2, V2-Lite, V3, R1, Kimi-K2, Moonlight, GLM-4.7-Flash. Latent attention,
// with or without a latent for the queries; leading dense layers; shared experts; gating,
// renormalisation, scale and expert groups by their keys. A group counts by its two best scores,
// in GGUF files of V2 too, whose own code takes the best one: these do not tell the ways apart.
// Its checkpoints do, and there it is obeyed.
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec deepseek2_family = {
    .architecture = "deepseek2",
    .proven = true,
    .attention = AttentionKind::mla,
    .rope = RopeKind::norm,
    .experts = Presence::optional,
    .shared = SharedExpert::counted,
    .selection_bias = Presence::optional,
    .gating_by_key = true,
    .sigmoid_block_counts = {47, 48},
    .weight_norm = WeightNorm::by_key,
};

}  // namespace millrace
