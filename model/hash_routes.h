// HashRoutes: the experts of hash-routed layers, which follow from a token's id alone. So they are
// known before any layer has run, for every token of a prompt and for a token that was just
// sampled: whoever reads ahead asks here. Built with the trunk, then read-only: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/file.h"
#include "model/model_spec.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

class HashRoutes {
 public:
  // Reads the tables of all hash-routed layers. `format` error, naming file, tensor, token and
  // number, if one names an expert that does not exist; `io` error if it cannot be read.
  static Result<HashRoutes> read(const ModelSpec& spec, std::span<const File> files);
  static std::uint64_t bytes(const ModelSpec& spec) noexcept;  // that such an object holds

  // In rank order; empty if the layer's experts do not follow from the token. 0 <= token <
  // vocabulary.
  std::span<const ExpertIndex> experts(LayerIndex layer, TokenId token) const noexcept {
    if (layer >= tables_.size() || tables_[layer].empty()) return {};
    return {&tables_[layer][static_cast<std::size_t>(token) * used_], used_};
  }

 private:
  std::size_t used_ = 0;                          // experts of a token
  std::vector<std::vector<ExpertIndex>> tables_;  // per layer: vocabulary x used
};

}  // namespace millrace
