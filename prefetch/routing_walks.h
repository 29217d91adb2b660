// Whether the rows of a recorded routing follow each other as tokens walk through layers: a file
// that lost rows is found out. One walk takes a prompt part or a token through all routed layers;
// in each layer it has the same steps. Only the last walk may end early (a run was interrupted).
// Fed row by row; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "prefetch/routing_record.h"

namespace millrace {

class RoutingWalks {
 public:
  // What is wrong with `row` behind the rows before it; empty: nothing. `whole`: its layer must
  // have every step of the walk. The last layer of other recorders has those alone whose logits
  // were asked for: while it is not known to be another layer, `whole` is false, and what is
  // missing is told with the layer behind it.
  std::string take(const RoutingRow& row, bool whole);

 private:
  bool begins_walk(const RoutingRow& row) const noexcept;
  std::string end_walk();
  std::string end_layer() const;
  std::string begin_layer(const RoutingRow& row);
  std::string next_step(const RoutingRow& row, bool whole);

  std::vector<LayerIndex> known_;     // layers of the first walk, once it has ended
  std::vector<LayerIndex> layers_;    // of this walk, so far
  std::vector<std::uint64_t> steps_;  // of this walk's first layer
  std::uint32_t turn_ = 0;
  std::size_t at_ = 0;  // behind the step in steps_ of the row before
  std::string lacks_;   // what the layer in hand lacks, where that may be
  bool whole_ = false;  // of the row before
};

// What the last token or prompt part lacks, where a run was interrupted or a file cut at the end
// of a line: "the last token is incomplete: layers 0 to 2 of 6"; empty: nothing.
std::string incomplete_end(const RoutingRecord& record);

}  // namespace millrace
