// RoutingRecorder: --trace of a run. Writes what the engine's routers choose into a RoutingTrace,
// from start() until finish(). One thread; the engine outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "prefetch/routing_trace.h"
#include "runtime/engine.h"

namespace millrace {

class RoutingRecorder {
 public:
  // Creates or overwrites the file; an empty path records nothing. Errors name --trace.
  static Result<std::unique_ptr<RoutingRecorder>> start(Engine& engine, const std::string& path);
  ~RoutingRecorder();  // as finish(), without a word about failures
  RoutingRecorder(const RoutingRecorder&) = delete;
  RoutingRecorder& operator=(const RoutingRecorder&) = delete;

  // What follows belongs to turn `turn`; its positions from `prompt_tokens` on are generated.
  void begin_turn(std::uint32_t turn, std::size_t prompt_tokens) noexcept {
    turn_ = turn;
    prompt_tokens_ = prompt_tokens;
  }
  // Stops recording, writes the rest. Fails with `io` if any write did.
  Status finish();

 private:
  explicit RoutingRecorder(Engine& engine) : engine_(engine) {}
  void record(const TokenPlace& place, LayerIndex layer, std::span<const ExpertIndex> experts,
              std::span<const float> weights) noexcept;

  struct Record {
    RoutingRecorder& owner;
    void operator()(const TokenPlace& place, LayerIndex layer, std::span<const ExpertIndex> experts,
                    std::span<const float> weights) const noexcept {
      owner.record(place, layer, experts, weights);
    }
  };

  Engine& engine_;
  std::uint32_t turn_ = 0;
  std::size_t prompt_tokens_ = 0;
  std::unique_ptr<RoutingTrace> trace_;
  Record call_{*this};
  RoutingSink sink_{call_};
};

}  // namespace millrace
