// Attention of a model's layers, or what stands in its place, whatever kind they are: shapes per
// layer, and the buffers of the kinds that the model has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "model/blocks/attention_compressed.h"
#include "model/blocks/attention_gqa.h"
#include "model/blocks/attention_mla.h"
#include "model/blocks/delta_net.h"
#include "model/hparams.h"

namespace millrace {

class Attention {
 public:
  // For batches of up to `tokens_max`. Hparams and family must outlive it.
  Attention(const Hparams& hparams, const FamilySpec& family, std::size_t tokens_max,
            unsigned workers);
  // Bytes that such an object allocates (for the plan).
  static std::uint64_t bytes(const Hparams& hparams, const FamilySpec& family,
                             std::size_t tokens_max, unsigned workers) noexcept;

  // The quantized twins that the matrices that take the normed input want.
  static Rounding rounding(const BlockContext& context, const LayerWeights& weights) noexcept;
  // As attention_gqa(), attention_mla(), attention_compressed() and delta_net().
  bool run(const BlockContext& context, LayerIndex layer, const LayerWeights& weights,
           std::span<const TokenPlace> tokens, const RopeRows& rope, const ActivationRows& normed,
           float* projected);

 private:
  const Hparams& h_;
  const FamilySpec& family_;
  std::optional<GqaScratch> gqa_;
  std::optional<MlaScratch> mla_;
  std::optional<CompressedScratch> compressed_;
  std::optional<DeltaScratch> delta_;
};

}  // namespace millrace
