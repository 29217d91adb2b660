// Predictor: which experts a layer will ask for, before its router is run. Guesses change what is
// read early and nothing else. Owned by one Prefetcher, called by the thread that walks the layers;
// allocates in prepare() only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

struct PredictorShape {
  std::uint32_t layers = 0;
  std::uint32_t experts = 0;  // of the layer that has most
  std::uint32_t top_k = 0;
};

class Predictor {
 public:
  virtual ~Predictor() = default;
  virtual const char* name() const noexcept = 0;
  virtual void prepare(const PredictorShape& shape) = 0;
  // How many layers ahead it wants the routers run on the present state; 0: not at all.
  virtual std::uint32_t layers_ahead() const noexcept { return 0; }

  // One token's choice in a layer, in rank order.
  virtual void chosen(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept = 0;
  // What the router of `layer` chose from the state of a layer before it.
  virtual void foreseen(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept = 0;
  // Writes the likeliest experts of `layer`'s next turn into `out`, best first; returns how many.
  virtual std::uint32_t guess(LayerIndex layer, std::span<ExpertIndex> out) noexcept = 0;
};

// Names that --prefetch takes, "off" not among them.
std::span<const char* const> predictor_names() noexcept;
// What --prefetch is where it is not given.
const char* predictor_default() noexcept;
// What a predictor of this name holds, for the plan; off and unknown names: nothing.
std::uint64_t predictor_bytes(std::string_view name, const PredictorShape& shape) noexcept;
// By such a name; `usage` error with the known names otherwise.
Result<std::unique_ptr<Predictor>> make_predictor(std::string_view name);

}  // namespace millrace
