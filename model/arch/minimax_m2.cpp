// minimax-m2: MiniMax-M2, M2.1. q and k are normed over the whole row, half of each head rotates;
// sigmoid gating with a bias for the choice, renormalised; no shared expert.
// No oracle: every part is proven in another family, their combination is not.
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec minimax_m2_family = {
    .architecture = "minimax-m2",
    .proven = false,
    .qk_norm = QkNorm::whole_row,
    .experts = Presence::required,
    .expert_width = ExpertWidth::either,
    .selection_bias = Presence::required,
    .gating = Gating::sigmoid,
    .gating_by_key = true,
    .weight_norm = WeightNorm::always,
    .untied = true,
};

}  // namespace millrace
