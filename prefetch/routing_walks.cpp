#include "prefetch/routing_walks.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

std::string missing(LayerIndex layer, std::uint64_t step) {
  return fmt::format("a row is missing before this one: layer {} of step {}", layer, step);
}

}  // namespace

std::string RoutingWalks::take(const RoutingRow& row, bool whole) {
  if (begins_walk(row)) {
    if (std::string wrong = end_walk(); !wrong.empty()) return wrong;
    turn_ = row.turn;
  }
  if (layers_.empty() || layers_.back() != row.layer)
    if (std::string wrong = begin_layer(row); !wrong.empty()) return wrong;
  return next_step(row, whole);
}

// In the first layer of a walk steps only rise; that of a model with one routed layer has no other
// sign of its end.
bool RoutingWalks::begins_walk(const RoutingRow& row) const noexcept {
  if (layers_.empty() || row.turn != turn_ || row.layer < layers_.back()) return true;
  return layers_.size() == 1 && row.layer == layers_.back() && row.step <= steps_.back();
}

std::string RoutingWalks::end_walk() {
  if (layers_.empty()) return {};
  if (layers_.size() < known_.size()) return missing(known_[layers_.size()], steps_.front());
  if (whole_)
    if (std::string wrong = end_layer(); !wrong.empty()) return wrong;
  if (known_.empty()) known_ = layers_;
  layers_.clear();
  steps_.clear();
  lacks_.clear();
  return {};
}

std::string RoutingWalks::end_layer() const {
  if (!lacks_.empty()) return lacks_;
  const bool complete = layers_.size() <= 1 || at_ == steps_.size();
  return complete ? std::string() : missing(layers_.back(), steps_[at_]);
}

std::string RoutingWalks::begin_layer(const RoutingRow& row) {
  if (std::string wrong = end_layer(); !wrong.empty()) return wrong;
  const std::size_t index = layers_.size();
  if (!known_.empty()) {
    if (index >= known_.size() || row.layer < known_[index])
      return fmt::format("layer {} of step {}: the steps before have no such layer", row.layer,
                         row.step);
    if (row.layer > known_[index]) return missing(known_[index], row.step);
  }
  layers_.push_back(row.layer);
  at_ = 0;
  return {};
}

std::string RoutingWalks::next_step(const RoutingRow& row, bool whole) {
  whole_ = whole;
  if (layers_.size() == 1) {
    steps_.push_back(row.step);
    return {};
  }
  while (at_ < steps_.size() && steps_[at_] < row.step) {
    if (lacks_.empty()) lacks_ = missing(row.layer, steps_[at_]);
    if (whole) return lacks_;
    ++at_;
  }
  if (at_ == steps_.size() || steps_[at_] != row.step)
    return fmt::format("layer {} has step {}, layer {} before it has not (or it comes twice)",
                       row.layer, row.step, layers_.front());
  ++at_;
  return {};
}

std::string incomplete_end(const RoutingRecord& record) {
  if (record.rows.empty()) return {};
  const RoutingRow& last = record.rows.back();
  LayerIndex first_layer = last.layer, last_layer = last.layer;
  for (const RoutingRow& row : record.rows) {
    first_layer = std::min(first_layer, row.layer);
    last_layer = std::max(last_layer, row.layer);
  }
  if (record.sized) last_layer = std::max(last_layer, record.header.layers - 1);
  if (last.layer == last_layer) return {};
  return fmt::format("the last {} is incomplete: layers {} to {} of {}",
                     last.phase == RoutingPhase::prompt ? "part of the prompt" : "token",
                     first_layer, last.layer, last_layer + 1);
}

}  // namespace millrace
