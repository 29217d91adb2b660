// LayerTensors: finds the tensors of one layer, in any of the forms that files have, and puts them
// under their roles. Lives only while a ModelSpec is built; one thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/arch/family.h"
#include "model/expert_extents.h"
#include "model/hparams.h"
#include "model/model_spec.h"
#include "model/optional_tensors.h"
#include "model/tensor_finder.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

class LayerTensors {
 public:
  // All borrowed.
  LayerTensors(TensorFinder& finder, OptionalTensors& optional, const Hparams& hparams,
               const FamilySpec& family, LayerIndex layer, LayerSpec& spec)
      : finder_(finder),
        optional_(optional),
        h_(hparams),
        family_(family),
        layer_(layer),
        spec_(spec) {}

  Status attention();
  // Dense FFN, or router, shared expert and routed experts; `experts` stays empty for dense layers.
  Status feed_forward(std::vector<ExpertExtent>& experts);
  // Hyper-connections, where the model has them.
  Status streams();

 private:
  std::string name(std::string_view base, std::string_view suffix) const;
  void set(MatrixRole role, std::optional<MatrixExtent> extent) {
    spec_.matrices[static_cast<std::size_t>(role)] = extent;
  }
  void set(VectorRole role, std::optional<MatrixExtent> extent) {
    spec_.vectors[static_cast<std::size_t>(role)] = extent;
  }
  bool has(std::string_view base) const { return finder_.has(name(base, ".weight")); }
  // Files have either of two tensors, and this one has neither.
  Error neither(std::string_view usual, std::string_view other) const {
    return finder_.missing({name(usual, ".weight"), name(other, ".weight")});
  }
  Status matrix(MatrixRole role, std::string_view base, std::uint64_t columns, std::uint64_t rows);
  Status vector(VectorRole role, std::string_view base, std::string_view suffix,
                std::uint64_t count, Presence presence);
  // `parts` vectors of `count` as one.
  Status vectors(VectorRole role, std::string_view base, std::string_view suffix,
                 std::uint64_t count, std::uint64_t parts, Presence presence);

  Status gqa();
  Status fused_qkv(std::uint64_t q_rows, std::uint64_t k_rows, std::uint64_t v_rows);
  Status qk_norm();
  Status mla();
  Status mla_keys_and_values();
  Status compressed();
  Status compressor();
  Status indexer();
  // A tensor with several spellings, the first one being the usual.
  Status matrix_of(MatrixRole role, std::initializer_list<const char*> bases, std::uint64_t columns,
                   std::uint64_t rows);
  Status vectors_of(VectorRole role, std::initializer_list<const char*> bases, std::uint64_t count,
                    std::uint64_t parts = 1);
  Result<std::string> name_of(std::initializer_list<const char*> bases) const;
  Status delta_net();
  Status delta_inputs();

  Status dense();
  Status moe();
  Status expert_choice();
  Status shared_expert();
  Status expert_biases();
  Status expert_scales();
  Status expert_scale(VectorRole role, const char* base);
  Result<std::vector<ExpertExtent>> routed_experts();
  Status split_gate_up(ExpertExtent& expert);
  Result<std::vector<ExpertExtent>> separate_experts();

  TensorFinder& finder_;
  OptionalTensors& optional_;
  const Hparams& h_;
  const FamilySpec& family_;
  LayerIndex layer_;
  LayerSpec& spec_;
};

}  // namespace millrace
