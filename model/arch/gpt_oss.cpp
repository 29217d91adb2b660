// gpt-oss: 20b and 120b. Biases everywhere, also one row per expert; a sink logit per head; even
// layers see a sliding window (the pattern is not in the metadata); YaRN that magnifies q and k;
// experts chosen by their logits and weighted by the softmax over the chosen ones; clamped gated
// units whose numbers are not in the metadata either.
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec gpt_oss_family = {
    .architecture = "gpt-oss",
    .proven = true,
    .sliding = SlidingLayers::even,
    .qkv_bias = Presence::required,
    .output_bias = Presence::required,
    .sinks = Presence::required,
    .ffn_norm = "post_attention_norm",
    .swiglu = {.limit = 7, .slope = 1.702F, .offset = 1},
    .experts = Presence::required,
    .expert_width = ExpertWidth::either,
    .router_bias = Presence::required,
    .expert_bias = Presence::required,
    .gating = Gating::softmax_chosen,
    .untied = true,
};

}  // namespace millrace
