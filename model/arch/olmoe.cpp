// olmoe: OLMoE-1B-7B. q and k are normed over the whole row, before the split into heads; the
// chosen weights stay as the softmax gives them. attention.clamp_kqv is honoured where a file has
// it.
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec olmoe_family = {
    .architecture = "olmoe",
    .proven = true,
    .qk_norm = QkNorm::whole_row,
    .experts = Presence::required,
    .expert_width = ExpertWidth::either,
};

}  // namespace millrace
