// deepseek4: DeepSeek-V4-Flash. Residual streams mixed around each sublayer; attention over one row
// per position that all heads share, of a window and of pooled older positions; the first layers'
// experts follow from the token's id, the others' from sqrt(softplus) scores with a selection bias;
// clamped gated units; a shared expert. The layer that predicts further tokens is not run.
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec deepseek4_family = {
    .architecture = "deepseek4",
    .proven = true,
    .attention = AttentionKind::compressed,
    .rope = RopeKind::norm,
    .sliding = SlidingLayers::all,
    .sinks = Presence::required,
    .experts = Presence::required,
    .shared = SharedExpert::counted,
    .selection_bias = Presence::required,
    .gating = Gating::sqrt_softplus,
    .gating_by_key = true,
    .hash_layers = true,
    .weight_norm = WeightNorm::by_key,
    .untied = true,
    .streams = true,
    .nextn_by_tensor = true,
};

}  // namespace millrace
