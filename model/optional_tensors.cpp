#include "model/optional_tensors.h"

#include <fmt/format.h>

#include "runtime/base/log.h"

namespace millrace {

namespace {

// The role that stands for all that belong together.
VectorRole group_of(VectorRole role) {
  switch (role) {
    case VectorRole::attn_k_bias:
    case VectorRole::attn_v_bias:
      return VectorRole::attn_q_bias;
    case VectorRole::attn_k_norm:
      return VectorRole::attn_q_norm;
    case VectorRole::ffn_up_bias:
    case VectorRole::ffn_down_bias:
      return VectorRole::ffn_gate_bias;
    case VectorRole::expert_up_bias:
    case VectorRole::expert_gate_up_bias:
    case VectorRole::expert_down_bias:
      return VectorRole::expert_gate_bias;
    default:
      return role;
  }
}

}  // namespace

void OptionalTensors::tell(VectorRole role, const std::string& name, bool present) {
  groups_[group_of(role)].tell(name, present);
}

void OptionalTensors::tell_factor(VectorRole role, DType of, const std::string& name,
                                  bool present) {
  factors_[{role, of}].tell(name, present);
}

Status OptionalTensors::check(const TensorFinder& finder) const {
  for (const auto& [role, group] : groups_)
    if (group.torn())
      return finder.bad(group.missing,
                        fmt::format("missing, but {} is there: such tensors are in all layers or "
                                    "in none",
                                    printable(group.there)));
  return {};
}

std::vector<std::string> OptionalTensors::notes() const {
  std::vector<std::string> notes;
  for (const auto& [key, group] : factors_)
    if (group.torn())
      notes.push_back(
          fmt::format("{} is not there and counts as 1; {} is there", group.missing, group.there));
  return notes;
}

}  // namespace millrace
