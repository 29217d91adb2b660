// llama: Llama 2/3, Mistral and their fine-tunes (dense), and Mixtral (experts when expert_count >
// 0). Mixtral's chosen weights are always renormalised, whatever the metadata says.
// attention.sliding_window is ignored for this architecture, as its publishers' engines do.
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec llama_family = {
    .architecture = "llama",
    .proven = true,
    .rope = RopeKind::norm,
    .qkv_bias = Presence::optional,
    .output_bias = Presence::optional,
    .rotary_is_head = true,
    .dense_bias = Presence::optional,
    .experts = Presence::optional,
    .expert_width = ExpertWidth::feed_forward_length,
    .weight_norm = WeightNorm::always,
};

}  // namespace millrace
