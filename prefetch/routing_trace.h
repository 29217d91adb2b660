// Records which experts the routers chose, as CSV: a comment line with the model, a header, then
// one row per (step, layer): turn,phase,step,layer,experts,weights. Experts in rank order and their
// weights are lists with spaces inside; phase is 0 for the prompt, 1 for the generation; step
// counts positions from the start of the turn. Fed by the pipeline from one thread at a time;
// record() does not allocate, and writes a block at a time.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"

namespace millrace {

struct RoutingTraceHeader {
  std::string model;
  std::string architecture;
  std::uint32_t layers = 0;
  std::uint32_t experts = 0;
  std::uint32_t experts_used = 0;
  std::vector<std::uint64_t> expert_bytes;  // the different sizes, ascending
  std::uint32_t batch_tokens = 0;           // of a prompt part at most; 0: not told
};

enum class RoutingPhase : std::uint8_t { prompt = 0, generation = 1 };

class RoutingTrace {
 public:
  // Creates or overwrites the file. Fails with `io`: "PATH: cause".
  static Result<std::unique_ptr<RoutingTrace>> create(const std::string& path,
                                                      const RoutingTraceHeader& header);
  ~RoutingTrace();  // as finish(), without a word about failures
  RoutingTrace(const RoutingTrace&) = delete;
  RoutingTrace& operator=(const RoutingTrace&) = delete;

  // `experts` and `weights` are of equal length, at most limits::experts_used_max. After a failed
  // write nothing more is written; finish() tells.
  void record(std::uint32_t turn, RoutingPhase phase, std::uint64_t step, LayerIndex layer,
              std::span<const ExpertIndex> experts, std::span<const float> weights) noexcept;
  // Writes the rest and closes. Fails with `io` if any write did.
  Status finish() noexcept;

 private:
  RoutingTrace(std::string path, std::FILE* file);
  void flush() noexcept;

  std::string path_;
  std::FILE* file_ = nullptr;
  int errno_ = 0;  // of the first write that failed
  std::size_t used_ = 0;
  std::vector<char> buffer_;
};

}  // namespace millrace
