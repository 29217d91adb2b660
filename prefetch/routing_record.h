// A recorded routing, read back: the CSV of RoutingTrace, plain or compressed with gzip, and the
// form "seq,pos,token,layer,e0,…,w0,…" of other recorders. Everything in it is checked: it comes
// from a file. Plain data once read; functions are pure but for the reading.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "prefetch/routing_trace.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

struct RoutingRow {
  std::uint32_t turn = 0;
  RoutingPhase phase = RoutingPhase::prompt;
  std::uint64_t step = 0;
  LayerIndex layer = 0;
  std::uint32_t first = 0;  // into experts and weights
  std::uint32_t count = 0;
};

struct RoutingRecord {
  RoutingTraceHeader header;  // what the file does not say is taken from its rows; model "unknown"
  bool sized = false;         // it does say how many layers and experts its model has
  std::vector<RoutingRow> rows;
  std::vector<ExpertIndex> experts;  // in rank order, row by row
  std::vector<float> weights;        // as many

  std::span<const ExpertIndex> experts_of(const RoutingRow& row) const {
    return std::span(experts).subspan(row.first, row.count);
  }
  std::span<const float> weights_of(const RoutingRow& row) const {
    return std::span(weights).subspan(row.first, row.count);
  }
};

// `usage` errors say "NAME:LINE: what is wrong"; a record without rows is one, one whose last line
// does not end, and one in which a row is missing (RoutingWalks).
Result<RoutingRecord> parse_routing(std::string_view text, const std::string& name);
// The same of a file, line by line as it is read and inflated. `io` if it cannot be read or is a
// damaged gzip; `cancelled`.
Result<RoutingRecord> read_routing(const std::string& path,
                                   const std::atomic<bool>* cancel = nullptr);
// Writes it in the form that --trace writes.
Status write_routing(const RoutingRecord& record, const std::string& path);

// One call of a layer, as the pipeline makes it: the different experts of a batch's tokens, in
// order of their first mention.
struct RoutingCall {
  LayerIndex layer = 0;
  RoutingPhase phase = RoutingPhase::prompt;
  std::uint32_t tokens = 0;
  std::vector<ExpertIndex> experts;
  std::vector<std::uint32_t> chosen_by;  // tokens that chose each
};

// The calls that the rows stand for. Rows of a prompt part follow each other layer by layer, so
// neighbours of one layer are a part (of at most the header's batch_tokens).
std::vector<RoutingCall> routing_calls(const RoutingRecord& record);

}  // namespace millrace
