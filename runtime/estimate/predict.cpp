#include "runtime/estimate/predict.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

namespace millrace {

namespace {

// Where nothing was measured: a SATA drive, an ordinary and a fast NVMe drive.
constexpr DriveRange unknown_drive = {0.4e9, 2.5e9, 7e9, false, 200e-6};
// What a layer costs beside its weights (norms, attention over few positions, waking threads).
constexpr double layer_overhead_seconds = 60e-6;
// Bounds of the computing, and of what guessing ahead does where it is on.
constexpr double compute_slow = 1.2, compute_fast = 0.9, ahead_best = 0.95;

template <class Visit>
void each_trunk_matrix(const ModelSpec& spec, Visit visit) {
  for (const LayerSpec& layer : spec.layers)
    for (const auto& matrix : layer.matrices)
      if (matrix) visit(*matrix);
  visit(spec.head);
}

DType largest(const std::map<DType, std::uint64_t>& bytes, DType fallback) {
  DType type = fallback;
  std::uint64_t most = 0;
  for (const auto& [candidate, sum] : bytes)
    if (sum > most) most = sum, type = candidate;
  return type;
}

// What one token takes through the kernels.
struct TokenTraffic {
  double trunk = 0;    // all of it but the embedding, of which it takes a row
  double head = 0;     // of the trunk
  double experts = 0;  // those it is routed to
  double from_disk_trunk = 0;
};

TokenTraffic token_bytes(const ModelSpec& spec, const Plan& plan) {
  TokenTraffic bytes;
  each_trunk_matrix(spec, [&](const MatrixExtent& matrix) {
    bytes.trunk += static_cast<double>(matrix.bytes());
  });
  bytes.head = static_cast<double>(spec.head.bytes());
  for (LayerIndex layer = 0; layer < spec.experts.layers(); ++layer) {
    const std::uint32_t count = spec.experts.experts(layer);
    if (count == 0) continue;
    double sum = 0;
    for (ExpertIndex expert = 0; expert < count; ++expert)
      sum += static_cast<double>(spec.experts.at({layer, expert}).bytes());
    bytes.experts += sum / count * spec.hparams.experts_used;
  }
  bytes.from_disk_trunk = static_cast<double>(plan.trunk.streamed_bytes_per_step);
  return bytes;
}

// Between the cells of one depth, by the logarithm of the piece size.
double rate_between(const std::vector<ReadRate>& grid, std::uint32_t depth, double piece_bytes) {
  const ReadRate* below = nullptr;
  const ReadRate* above = nullptr;
  for (const ReadRate& cell : grid) {
    const auto bytes = static_cast<double>(cell.piece_bytes);
    if (cell.depth != depth) continue;
    if (bytes <= piece_bytes && (below == nullptr || cell.piece_bytes > below->piece_bytes))
      below = &cell;
    if (bytes >= piece_bytes && (above == nullptr || cell.piece_bytes < above->piece_bytes))
      above = &cell;
  }
  if (below == nullptr) return above == nullptr ? 0 : above->bytes_per_second;
  if (above == nullptr || above == below) return below->bytes_per_second;
  const auto low = static_cast<double>(below->piece_bytes);
  const double way =
      std::log(piece_bytes / low) / std::log(static_cast<double>(above->piece_bytes) / low);
  return below->bytes_per_second + way * (above->bytes_per_second - below->bytes_per_second);
}

// What reads of that size get of the cell's rate: they are cut into equal pieces of about its size.
double share_of_cell(const std::vector<ReadRate>& grid, const ReadRate& cell,
                     std::uint64_t read_bytes) {
  const auto bytes = static_cast<double>(std::max<std::uint64_t>(1, read_bytes));
  const double pieces = std::max(1.0, std::round(bytes / static_cast<double>(cell.piece_bytes)));
  const double rate = rate_between(grid, cell.depth, bytes / pieces);
  return rate > 0 ? std::min(1.0, rate / cell.bytes_per_second) : 1.0;
}

// Chances of 0 to `most` misses in a layer when each of `most` experts is hit with that chance.
std::vector<double> miss_chances(double hits, std::uint32_t most) {
  std::vector<double> chances = {1};
  for (std::uint32_t i = 0; i < most; ++i) {
    chances.push_back(0);
    for (std::size_t m = chances.size() - 1; m > 0; --m)
      chances[m] = chances[m] * hits + chances[m - 1] * (1 - hits);
    chances[0] *= hits;
  }
  return chances;
}

}  // namespace

// The rate of the cell that is taken, judged by its neighbours too (half to double its bytes in
// flight, pieces not much smaller): the fastest of many cells is the luckiest, and promises more
// than comes. Quarters of the neighbours bound the range, where the repeats do not bound it wider.
DriveRange drive_range(const std::optional<DriveProfile>& profile, std::uint64_t read_bytes) {
  if (!profile) return unknown_drive;
  DriveRange range = {profile->slowest_bytes_per_second, profile->bytes_per_second,
                      profile->fastest_bytes_per_second, true, 0};
  const std::vector<ReadRate>& grid = profile->grid;
  if (grid.empty()) return range;
  const ReadRate& cell =
      grid[best_cell(grid, profile->noise, std::max<std::uint64_t>(1, read_bytes))];
  const std::uint64_t in_flight = cell.piece_bytes * cell.depth;
  std::vector<double> rates;
  for (const ReadRate& other : grid) {
    const std::uint64_t others = other.piece_bytes * other.depth;
    if (2 * others >= in_flight && others <= 2 * in_flight &&
        2 * other.piece_bytes >= cell.piece_bytes)
      rates.push_back(other.bytes_per_second);
    if (other.piece_bytes == cell.piece_bytes && other.depth == 1)
      range.latency_seconds = other.p50_us * 1e-6;
  }
  std::sort(rates.begin(), rates.end());
  const double middle = rates[rates.size() / 2];
  const double scale = range.middle > 0 ? middle / range.middle : 1;
  const double share = share_of_cell(grid, cell, read_bytes);
  return {share * std::min(range.low * scale, rates[rates.size() / 4]), share * middle,
          share * std::max(range.high * scale, rates[rates.size() * 3 / 4]), true,
          range.latency_seconds};
}

TokenTimes token_times(const ModelSpec& spec, const ComputeSpeed& speed) {
  const TokenTraffic bytes = token_bytes(spec, Plan{});
  return {bytes.trunk / speed.trunk_bytes_per_second + spec.hparams.layers * layer_overhead_seconds,
          bytes.experts / speed.expert_bytes_per_second, bytes.head / speed.trunk_bytes_per_second};
}

double layer_seconds(const LayerCost& cost, double ahead) noexcept {
  const double compute = cost.trunk_seconds + cost.expert_seconds;
  if (cost.read_seconds <= 0) return compute;
  const double asked = cost.trunk_seconds +
                       std::max(cost.expert_seconds,
                                cost.latency_seconds + cost.read_seconds + cost.one_expert_seconds);
  const double guessed = std::max(compute, cost.read_seconds);
  return ahead * guessed + (1 - ahead) * asked;
}

double ahead_share(std::string_view predictor) noexcept {
  if (predictor == "router1") return 0.8;
  if (predictor == "router2") return 0.7;
  return predictor == "transition" ? 0.3 : 0;
}

const char* binds_name(Binds binds) noexcept {
  switch (binds) {
    case Binds::drive:
      return "drive";
    case Binds::memory:
      return "memory";
    case Binds::compute:
      return "compute";
  }
  return "compute";
}

DType trunk_type(const ModelSpec& spec) noexcept {
  std::map<DType, std::uint64_t> bytes;
  each_trunk_matrix(spec,
                    [&](const MatrixExtent& matrix) { bytes[matrix.type] += matrix.bytes(); });
  return largest(bytes, DType::f32);
}

DType expert_type(const ModelSpec& spec) noexcept {
  std::map<DType, std::uint64_t> bytes;
  for (LayerIndex layer = 0; layer < spec.experts.layers(); ++layer) {
    if (spec.experts.experts(layer) == 0) continue;
    const ExpertExtent& expert = spec.experts.at({layer, 0});
    for (const MatrixExtent* slice : {&expert.gate, &expert.up, &expert.down})
      bytes[slice->type] += slice->bytes();
  }
  return largest(bytes, trunk_type(spec));
}

double token_weight_bytes(const ModelSpec& spec) {
  const TokenTraffic bytes = token_bytes(spec, Plan{});
  return bytes.trunk + bytes.experts;
}

namespace {

// Seconds of a token: each layer with its share of the trunk and of what has to be read. How many
// experts a layer misses varies, and what a layer with many waits is not won back by one with none.
// Before the first layer nobody guesses.
double token_seconds(const PredictInput& input, const TokenTraffic& bytes, double hits, double rate,
                     double compute_factor, double ahead) {
  const Hparams& h = input.spec.hparams;
  const TokenTimes times = token_times(input.spec, input.speed);
  const double layers = h.layers;
  const double experts = std::max<double>(1, h.experts_used);
  const double streamed = bytes.from_disk_trunk / layers;
  const double expert_bytes = bytes.experts / layers / experts;
  LayerCost cost;
  cost.trunk_seconds = compute_factor * (times.trunk - times.head) / layers;
  cost.expert_seconds = compute_factor * times.experts / layers;
  cost.one_expert_seconds = cost.expert_seconds / experts;
  cost.latency_seconds = input.drive.latency_seconds;
  double seconds = compute_factor * times.head;
  const std::vector<double> chances = miss_chances(hits, std::max(1U, h.experts_used));
  for (std::size_t misses = 0; misses < chances.size(); ++misses) {
    cost.read_seconds = (streamed + static_cast<double>(misses) * expert_bytes) / rate;
    if (misses == 0) {
      seconds += chances[misses] * layers * layer_seconds(cost, 1);
      continue;
    }
    seconds +=
        chances[misses] * ((layers - 1) * layer_seconds(cost, ahead) + layer_seconds(cost, 0));
  }
  return seconds;
}

}  // namespace

Prediction predict(const PredictInput& input) {
  const ModelSpec& spec = input.spec;
  const Plan& plan = input.plan;
  const Hparams& h = spec.hparams;
  Prediction made;
  const TokenTraffic bytes = token_bytes(spec, plan);
  const double pool = static_cast<double>(spec.experts.pool_bytes());
  const double share =
      pool == 0 || plan.slots.complete ? 1.0 : static_cast<double>(plan.slots.bytes) / pool;
  made.hits =
      input.known_hits ? *input.known_hits : expected_hits(share, h.experts_used, h.experts);
  made.hits_from = input.known_hits ? std::string(input.known_from)
                   : share >= 1     ? "all experts fit"
                                    : "the curve of recorded models: this one's routing is not "
                                      "known yet";
  made.drive_bytes_per_token = bytes.experts * (1 - made.hits.middle) + bytes.from_disk_trunk;
  made.drive_bytes_per_second = input.drive.middle;
  made.memory_bytes_per_token = bytes.trunk + bytes.experts;
  const double ahead = ahead_share(input.prefetch);
  const DriveRange& drive = input.drive;
  const auto rate = [&](double hits, double bandwidth, double compute_factor, double early) {
    return 1 / token_seconds(input, bytes, hits, bandwidth, compute_factor, early);
  };
  made.low = rate(made.hits.low, drive.low, compute_slow, 0);
  made.middle = rate(made.hits.middle, drive.middle, 1, ahead);
  made.high = rate(made.hits.high, drive.high, compute_fast, ahead > 0 ? ahead_best : 0);
  const TokenTimes times = token_times(spec, input.speed);
  const bool limited_by_memory =
      input.speed.expert_bytes_per_second > 0.7 * input.speed.memory_bytes_per_second;
  if (made.drive_bytes_per_token / drive.middle > times.trunk + times.experts)
    made.binds = Binds::drive;
  else made.binds = limited_by_memory ? Binds::memory : Binds::compute;
  return made;
}

}  // namespace millrace
