// What is known of a model's own routing: the choices of its latest decoded tokens, kept between
// runs, so that the next plan need not guess how often an expert will be in the cache.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/model_spec.h"
#include "prefetch/routing_record.h"
#include "prefetch/slot_layout.h"
#include "prefetch/slot_plan.h"
#include "runtime/base/result.h"
#include "runtime/estimate/hit_curve.h"

namespace millrace {

// Tokens that are kept of a model, and that a run must decode for them to be kept.
inline constexpr std::uint32_t known_tokens_max = 256, known_tokens_min = 32;

// Tells models apart, also such as differ in their weights alone: sizes, and some bytes of the
// first and the last router. `io` error if they cannot be read.
Result<std::string> routing_key(const ModelSpec& spec);

// The file of a model in the folder of what is kept.
std::string routing_path(const std::string& folder, const std::string& key);
// Nothing if it is not known. A file that is damaged or of another model is ignored with a warning.
std::optional<RoutingRecord> load_routing(const std::string& folder, const std::string& key,
                                          const ModelSpec& spec);

// A recorded trace as what is known of a model: its generated tokens, or all if there are none.
// `usage` error if it cannot be of this model, naming the first difference.
Result<RoutingRecord> decoded_part(RoutingRecord record, const std::string& path,
                                   const ModelSpec& spec);

// Choices of the latest decoded tokens, collected during a run. record() does not allocate.
class RoutingTail {
 public:
  RoutingTail(std::uint32_t layers, std::uint32_t experts_used);
  // A token's choice in a layer; layers ascending, then the next token.
  void record(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept;
  std::uint64_t tokens() const noexcept { return tokens_; }  // seen so far
  // Appends what is kept, as generated tokens of a turn.
  void append_to(RoutingRecord& record, std::uint32_t turn) const;

 private:
  std::size_t row(std::uint64_t token, LayerIndex layer) const noexcept {
    return static_cast<std::size_t>(token % known_tokens_max) * layers_ + layer;
  }
  std::ptrdiff_t layers_of(std::uint64_t token) const;
  std::uint32_t layers_, used_;
  std::uint64_t tokens_ = 0;
  LayerIndex layer_ = 0;                // of the latest record
  std::vector<std::uint16_t> experts_;  // [token][layer][rank]
  std::vector<std::uint8_t> counts_;    // [token][layer]
};

// Keeps a run's choices behind those of earlier runs, the newest known_tokens_max of them. `io`
// error. Fewer than known_tokens_min tokens: nothing is done.
Status save_routing(const std::string& folder, const std::string& key, const ModelSpec& spec,
                    const RoutingTail& tail);

// Hits of a cache of `plan` when these choices are made again, after a warm-up by the first half of
// them: of the tokens behind it on the average, and the worst and best quarter. Pure.
HitRange known_hits(const RoutingRecord& record, const SlotLayout& layout, const SlotPlan& plan,
                    std::uint32_t top_k, const std::string& policy);

}  // namespace millrace
