// qwen3: the dense Qwen3 models. Attention as in qwen3moe: no biases, q and k normed per head.
// No oracle of its own: its attention is qwen3moe's, its FFN that of qwen2, both proven.
#include "model/arch/registry.h"

namespace millrace {

const FamilySpec qwen3_family = {
    .architecture = "qwen3",
    .proven = false,
    .qk_norm = QkNorm::per_head,
};

}  // namespace millrace
