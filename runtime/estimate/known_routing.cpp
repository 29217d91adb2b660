#include "runtime/estimate/known_routing.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "io/file.h"
#include "prefetch/eviction_policy.h"
#include "prefetch/replay.h"
#include "runtime/base/hash.h"
#include "runtime/base/log.h"
#include "runtime/base/units.h"
#include "runtime/replay_study.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t sample_bytes = 4096;
constexpr std::size_t parts = 4;       // of the measured tokens, for the range
constexpr double least_spread = 0.02;  // of hits, to either side
constexpr std::uint64_t file_bytes_max = 64 * MiB;

Status hash_router(const ModelSpec& spec, const LayerSpec& layer, StreamHash& hash) {
  const auto& router = layer.matrix(MatrixRole::router);
  if (!router) return {};
  MILLRACE_ASSIGN(const File file, File::open(spec.files[router->file], DirectMode::off));
  std::array<std::byte, sample_bytes> bytes;
  const std::uint64_t count = std::min(sample_bytes, router->row_bytes);
  MILLRACE_TRY(file.read_exactly(router->offset_bytes, bytes.data(), count));
  hash.update(bytes.data(), count);
  return {};
}

RoutingTraceHeader header_of(const ModelSpec& spec) {
  return {.model = spec.hparams.name,
          .architecture = spec.family->architecture,
          .layers = spec.hparams.layers,
          .experts = spec.hparams.experts,
          .experts_used = spec.hparams.experts_used,
          .expert_bytes = {spec.expert_bytes()},
          .batch_tokens = 1};
}

// Rows of the newest `tokens` tokens; a token's rows stand together, layers ascending.
void drop_oldest(RoutingRecord& record, std::uint64_t tokens) {
  std::size_t first = record.rows.size();
  for (std::uint64_t left = tokens; first > 0; --first)
    if (first < record.rows.size() && record.rows[first].layer <= record.rows[first - 1].layer &&
        --left == 0)
      break;
  record.rows.erase(record.rows.begin(), record.rows.begin() + static_cast<std::ptrdiff_t>(first));
}

struct Hits {
  std::uint64_t hits = 0, requests = 0;
  double rate() const {
    return requests == 0 ? 0 : static_cast<double>(hits) / static_cast<double>(requests);
  }
};

Hits sum(std::span<const CallCounts> counts) {
  Hits made;
  for (const CallCounts& call : counts) {
    made.hits += call.hits;
    made.requests += call.hits + call.misses;
  }
  return made;
}

}  // namespace

Result<std::string> routing_key(const ModelSpec& spec) {
  StreamHash hash;
  const std::string text =
      fmt::format("{} {} {} {} {} {} {}", spec.family->architecture, spec.hparams.name,
                  spec.hparams.layers, spec.hparams.experts, spec.hparams.experts_used,
                  spec.hparams.width, spec.experts.pool_bytes());
  hash.update(text.data(), text.size());
  const auto routed = [](const LayerSpec& layer) { return layer.experts; };
  const auto first = std::find_if(spec.layers.begin(), spec.layers.end(), routed);
  const auto last = std::find_if(spec.layers.rbegin(), spec.layers.rend(), routed);
  if (first == spec.layers.end()) return hash_hex(hash.value());
  MILLRACE_TRY(hash_router(spec, *first, hash));
  MILLRACE_TRY(hash_router(spec, *last, hash));
  return hash_hex(hash.value());
}

std::string routing_path(const std::string& folder, const std::string& key) {
  return folder + "/routing-" + key + ".csv";
}

std::optional<RoutingRecord> load_routing(const std::string& folder, const std::string& key,
                                          const ModelSpec& spec) {
  if (folder.empty()) return std::nullopt;
  const std::string path = routing_path(folder, key);
  std::error_code error;
  const std::uint64_t bytes = fs::file_size(path, error);
  if (error) return std::nullopt;
  if (bytes > file_bytes_max) {
    log_warning(fmt::format("{}: ignored: {} are too much", path, format_bytes(bytes)));
    return std::nullopt;
  }
  auto record = read_routing(path);
  if (!record) {
    log_warning(record.error().what + " (ignored)");
    return std::nullopt;
  }
  const Hparams& h = spec.hparams;
  const RoutingTraceHeader& header = record->header;
  const bool same = header.layers == h.layers && header.experts == h.experts &&
                    header.experts_used == h.experts_used;
  const bool fits =
      same && std::all_of(record->rows.begin(), record->rows.end(),
                          [&](const RoutingRow& row) { return spec.layers[row.layer].experts; });
  if (fits) return *std::move(record);
  log_warning(path + ": ignored: it is of another model");
  return std::nullopt;
}

Result<RoutingRecord> decoded_part(RoutingRecord record, const std::string& path,
                                   const ModelSpec& spec) {
  const Hparams& h = spec.hparams;
  ModelFigures figures{spec.files.front(), h.name, spec.family->architecture, h.layers, h.experts,
                       h.experts_used,     {}};
  for (const LayerSpec& layer : spec.layers) figures.routed.push_back(layer.experts);
  MILLRACE_TRY(check_trace_of_model(record, path, figures));
  const auto generated = [](const RoutingRow& row) {
    return row.phase == RoutingPhase::generation;
  };
  if (std::any_of(record.rows.begin(), record.rows.end(), generated))
    std::erase_if(record.rows, [&](const RoutingRow& row) { return !generated(row); });
  return record;
}

RoutingTail::RoutingTail(std::uint32_t layers, std::uint32_t experts_used)
    : layers_(layers),
      used_(experts_used),
      experts_(std::size_t{known_tokens_max} * layers * experts_used),
      counts_(std::size_t{known_tokens_max} * layers) {}

void RoutingTail::record(LayerIndex layer, std::span<const ExpertIndex> experts) noexcept {
  if (tokens_ == 0 || layer <= layer_) {
    const std::size_t first = row(tokens_, 0);
    std::fill_n(counts_.begin() + static_cast<std::ptrdiff_t>(first), layers_, std::uint8_t{0});
    ++tokens_;
  }
  layer_ = layer;
  const std::size_t at = row(tokens_ - 1, layer);
  const std::size_t count = std::min<std::size_t>(experts.size(), used_);
  for (std::size_t i = 0; i < count; ++i)
    experts_[at * used_ + i] = static_cast<std::uint16_t>(experts[i]);
  counts_[at] = static_cast<std::uint8_t>(count);
}

std::ptrdiff_t RoutingTail::layers_of(std::uint64_t token) const {
  const auto first = counts_.begin() + static_cast<std::ptrdiff_t>(row(token, 0));
  return layers_ - std::count(first, first + layers_, std::uint8_t{0});
}

void RoutingTail::append_to(RoutingRecord& record, std::uint32_t turn) const {
  const std::uint64_t kept = std::min<std::uint64_t>(tokens_, known_tokens_max);
  // A run that was interrupted ends within a token, which would be a hole in front of later ones.
  const bool cut = kept > 1 && layers_of(tokens_ - 1) < layers_of(tokens_ - 2);
  for (std::uint64_t token = tokens_ - kept; token < tokens_ - (cut ? 1 : 0); ++token) {
    for (LayerIndex layer = 0; layer < layers_; ++layer) {
      const std::size_t at = row(token, layer);
      if (counts_[at] == 0) continue;
      record.rows.push_back({.turn = turn,
                             .phase = RoutingPhase::generation,
                             .step = token - (tokens_ - kept),
                             .layer = layer,
                             .first = static_cast<std::uint32_t>(record.experts.size()),
                             .count = counts_[at]});
      for (std::size_t i = 0; i < counts_[at]; ++i)
        record.experts.push_back(experts_[at * used_ + i]);
    }
  }
  record.weights.resize(record.experts.size(), 0.0f);
}

Status save_routing(const std::string& folder, const std::string& key, const ModelSpec& spec,
                    const RoutingTail& tail) {
  if (folder.empty() || tail.tokens() < known_tokens_min) return {};
  RoutingRecord record = load_routing(folder, key, spec).value_or(RoutingRecord{});
  record.header = header_of(spec);
  for (RoutingRow& row : record.rows) row.turn = 0;
  drop_oldest(record, known_tokens_max - std::min<std::uint64_t>(tail.tokens(), known_tokens_max));
  tail.append_to(record, 1);
  std::error_code error;
  fs::create_directories(folder, error);
  const std::string path = routing_path(folder, key);
  const std::string made = fmt::format("{}.{}.new", path, getpid());
  fs::remove(made, error);  // whatever stands there, also a pipe
  MILLRACE_TRY(write_routing(record, made));
  fs::rename(made, path, error);
  if (error) return Error{ErrorCode::io, path + ": " + error.message()};
  return {};
}

HitRange known_hits(const RoutingRecord& record, const SlotLayout& layout, const SlotPlan& plan,
                    std::uint32_t top_k, const std::string& policy) {
  if (plan.complete) return {1, 1, 1};
  auto chosen = make_eviction_policy(policy);
  MILLRACE_CHECK(chosen.has_value());  // the name was checked with the flags
  const std::vector<RoutingCall> calls = routing_calls(record);
  const auto counts = replay_calls(calls, layout, plan, top_k, *std::move(chosen));
  const std::span warm = std::span(counts).subspan(counts.size() / 2);
  const double middle = sum(warm).rate();
  HitRange hits{middle - least_spread, middle, middle + least_spread};
  const std::size_t each = warm.size() / parts;
  for (std::size_t part = 0; part < parts && each > 0; ++part) {
    const double rate = sum(warm.subspan(part * each, each)).rate();
    hits.low = std::min(hits.low, rate);
    hits.high = std::max(hits.high, rate);
  }
  return {std::clamp(hits.low, 0.0, 1.0), middle, std::clamp(hits.high, 0.0, 1.0)};
}

}  // namespace millrace
