// Replays a recorded routing with several policies at several cache sizes, beside Belady's choice,
// and prices what it counts in time. Pure but for reading the trace and a model's header.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "prefetch/routing_record.h"
#include "runtime/base/json.h"
#include "runtime/base/result.h"
#include "runtime/base/units.h"

namespace millrace {

// Bytes per second that a replay may be priced by.
inline constexpr double replay_rate_min = 1e6, replay_rate_max = 1e13;

struct ReplayOptions {
  std::string trace_path;
  std::string model_path;             // empty: the figures in the trace, or these
  std::uint64_t expert_bytes = 0;     // of a trace without model; 0: as the trace says
  std::uint32_t experts = 0;          // per layer; 0: as the trace says
  std::vector<std::string> policies;  // empty: all
  std::vector<SizeSpec> capacities;   // of the expert pool
  bool skip_small = false;  // capacities below the smallest that works, instead of an error
  double warmup = 0.5;      // share of the trace's tokens that only fill the cache
  // Pricing; no tokens/s without a rate.
  double drive_bytes_per_second = 0;
  double latency_seconds = 0;  // until a first piece of a layer is there
  double compute_seconds = 0;  // per token, everything resident
  double expert_share = 0.5;   // of it, in routed experts
  double head_share = 0;       // of it, behind the last layer
  double ahead = 0;            // share of the missing that is guessed in time
  std::string priced_by;       // where these are from, in words
  std::uint32_t shuffle_seed = 1;
  const std::atomic<bool>* cancel = nullptr;  // looked at between policies
};

// Rates are 0..1, of requests. "Warm": of the tokens after the warm-up.
struct ReplayRow {
  std::string policy;
  SizeSpec capacity;
  std::uint64_t cache_bytes = 0;
  std::uint64_t slots = 0;
  std::uint64_t requests = 0, hits = 0, compulsory = 0;  // of the whole trace
  std::uint64_t prompt_hits = 0, prompt_misses = 0;
  std::uint64_t decode_hits = 0, decode_misses = 0;
  double hit_rate = 0, warm_hit_rate = 0;
  double warm_compulsory_rate = 0;    // misses that no policy avoids
  double shuffled_hit_rate = 0;       // warm, tokens in random order
  double recovered = 0;               // of the way from LRU to Belady, warm
  double bytes_per_token = 0;         // warm; priced with guesses: without the slots these take
  double tokens_per_second_low = 0;   // warm; nothing overlaps
  double tokens_per_second = 0;       // hits compute while misses are read, layer by layer
  double tokens_per_second_high = 0;  // everything overlaps
  std::uint64_t priced_slots = 0;     // that bytes and speed are of: guesses take the others
};

struct ReplayStudy {
  RoutingTraceHeader trace;
  std::string note;  // what had to be assumed; empty: nothing
  std::uint64_t tokens = 0, warm_tokens = 0;
  std::uint64_t pool_bytes = 0;
  bool priced = false;
  std::string priced_by;
  std::vector<ReplayRow> rows;  // capacity by capacity; LRU and Belady always among them
};

// Whether the trace can be of this model: layers, experts, top-k (a trace may hold fewer), sizes.
// `usage` error that names the first difference.
struct ModelFigures {
  std::string path, name, architecture;
  std::uint32_t layers = 0, experts = 0, experts_used = 0;
  std::vector<bool> routed;  // layers with experts
};
Result<ModelFigures> read_model_figures(const std::string& path);
Status check_trace_of_model(const RoutingRecord& record, const std::string& trace_path,
                            const ModelFigures& model);

// `usage` errors: no such policy, a capacity below the smallest that works (named), a trace of
// another model, no sizes known. `cancelled`.
Result<ReplayStudy> study_replay(const ReplayOptions& options);

std::string replay_table(const ReplayStudy& study);
Json replay_json(const ReplayStudy& study);
// Tokens per second (hits, where it is not priced) by cache size, a curve for each policy.
std::string replay_svg(const ReplayStudy& study);

// One line per policy and phase of what a trace holds: tokens, reuse from one token to the next,
// skew of popularity.
struct TraceSummary {
  std::uint64_t prompt_tokens = 0, decode_tokens = 0, choices = 0;
  std::uint64_t experts_seen = 0, experts_all = 0;
  double reuse = 0;      // share of a decoded token's choices that the token before made too
  double top_tenth = 0;  // share of choices that the most chosen tenth of experts gets
};
TraceSummary summarise(const RoutingRecord& record);
std::string summary_table(const RoutingRecord& record, const TraceSummary& summary);
Json summary_json(const RoutingRecord& record, const TraceSummary& summary);

}  // namespace millrace
