// qwen2: Qwen1.5, Qwen2 and Qwen2.5, dense. q, k and v have biases, the output has none; small
// models tie the head to the embedding.
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec qwen2_family = {
    .architecture = "qwen2",
    .proven = true,
    .qkv_bias = Presence::required,
};

}  // namespace millrace
