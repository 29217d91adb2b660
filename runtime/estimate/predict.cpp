#include "runtime/estimate/predict.h"

#include <algorithm>
#include <map>

namespace millrace {

namespace {

// Where nothing was measured: a SATA drive, an ordinary and a fast NVMe drive.
constexpr DriveRange unknown_drive = {0.4e9, 2.5e9, 7e9, false};
// How much of the drive's rate a run gets: reads of one layer end before those of the next begin.
constexpr double drive_use_low = 0.7, drive_use_middle = 0.9, drive_use_high = 1.0;
// What a layer costs beside its weights (norms, attention over few positions, waking threads).
constexpr double layer_seconds_low = 20e-6, layer_seconds_middle = 60e-6,
                 layer_seconds_high = 200e-6;

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
struct TokenBytes {
  double trunk = 0;    // all of it but the embedding, of which it takes a row
  double experts = 0;  // those it is routed to
  double from_disk_trunk = 0;
};

TokenBytes token_bytes(const ModelSpec& spec, const Plan& plan) {
  TokenBytes bytes;
  each_trunk_matrix(spec, [&](const MatrixExtent& matrix) {
    bytes.trunk += static_cast<double>(matrix.bytes());
  });
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

}  // namespace

DriveRange drive_range(const std::optional<DriveProfile>& profile) {
  if (!profile) return unknown_drive;
  return {profile->slowest_bytes_per_second, profile->bytes_per_second,
          profile->fastest_bytes_per_second, true};
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
  const TokenBytes bytes = token_bytes(spec, Plan{});
  return bytes.trunk + bytes.experts;
}

Prediction predict(const ModelSpec& spec, const Plan& plan, const ComputeSpeed& speed,
                   const DriveRange& drive) {
  Prediction prediction;
  const TokenBytes bytes = token_bytes(spec, plan);
  const double pool = static_cast<double>(spec.experts.pool_bytes());
  const double share =
      pool == 0 || plan.slots.complete ? 1.0 : static_cast<double>(plan.slots.bytes) / pool;
  prediction.hits = expected_hits(share, spec.hparams.experts_used, spec.hparams.experts);
  const auto disk = [&](double hits) { return bytes.experts * (1 - hits) + bytes.from_disk_trunk; };
  prediction.drive_bytes_per_token = disk(prediction.hits.middle);
  prediction.memory_bytes_per_token = bytes.trunk + bytes.experts;
  const double trunk_seconds = bytes.trunk / speed.trunk_bytes_per_second;
  const double expert_seconds = bytes.experts / speed.expert_bytes_per_second;
  const double layers = spec.hparams.layers;
  // Low: nothing overlaps. Middle: experts compute while others load. High: everything overlaps.
  const double slow = disk(prediction.hits.low) / (drive.low * drive_use_low);
  const double usual = disk(prediction.hits.middle) / (drive.middle * drive_use_middle);
  const double fast = disk(prediction.hits.high) / (drive.high * drive_use_high);
  prediction.low =
      1 / (1.15 * (trunk_seconds + expert_seconds) + layers * layer_seconds_high + slow);
  prediction.middle =
      1 / (trunk_seconds + layers * layer_seconds_middle + std::max(expert_seconds, usual));
  prediction.high =
      1 / std::max(0.9 * (trunk_seconds + expert_seconds) + layers * layer_seconds_low, fast);
  const bool limited_by_memory =
      speed.expert_bytes_per_second > 0.7 * speed.memory_bytes_per_second;
  if (usual > trunk_seconds + expert_seconds) prediction.binds = Binds::drive;
  else prediction.binds = limited_by_memory ? Binds::memory : Binds::compute;
  return prediction;
}

}  // namespace millrace
