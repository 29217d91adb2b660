#include "prefetch/predictor.h"

#include <fmt/format.h>

#include <array>

#include "prefetch/predictors/history.h"
#include "prefetch/predictors/router_ahead.h"
#include "runtime/base/log.h"

namespace millrace {
namespace {

constexpr std::array known_predictors = {"router1", "router2", "previous", "transition", "wrong"};

template <class Made, class... Arguments>
std::unique_ptr<Predictor> made(Arguments... arguments) {
  return std::make_unique<Made>(arguments...);
}

}  // namespace

std::span<const char* const> predictor_names() noexcept { return known_predictors; }

const char* predictor_default() noexcept { return "router1"; }

std::uint64_t predictor_bytes(std::string_view name, const PredictorShape& shape) noexcept {
  const std::uint64_t experts = std::uint64_t{shape.layers} * shape.experts;
  if (name == "transition") return experts * (shape.experts + 1) * sizeof(float);
  if (name == "wrong") return experts * sizeof(std::uint64_t);
  if (name == "off") return 0;
  return std::uint64_t{shape.layers} * shape.top_k * sizeof(ExpertIndex);
}

Result<std::unique_ptr<Predictor>> make_predictor(std::string_view name) {
  if (name == "router1") return made<RouterAheadPredictor>(1U);
  if (name == "router2") return made<RouterAheadPredictor>(2U);
  if (name == "previous") return made<PreviousTokenPredictor>();
  if (name == "transition") return made<TransitionPredictor>();
  if (name == "wrong") return made<WrongPredictor>();
  return Error{ErrorCode::usage, fmt::format("--prefetch {}: unknown predictor; known: off, {}",
                                             printable(name), fmt::join(known_predictors, ", "))};
}

}  // namespace millrace
