// RoutingRecorder: what the engine's routers choose, from start() until finish(): into a file
// (--trace), and the latest decoded tokens' choices into what is kept of the model for later plans.
// One thread; the engine outlives it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "prefetch/routing_trace.h"
#include "runtime/engine.h"
#include "runtime/estimate/known_routing.h"

namespace millrace {

class RoutingRecorder {
 public:
  // `usage` error for a path where no layer has a router.
  static Status check(const Engine& engine, const std::string& path);
  // After check(). Creates or overwrites the file; an empty path: none. Errors name --trace.
  static Result<std::unique_ptr<RoutingRecorder>> start(Engine& engine, const std::string& path);
  ~RoutingRecorder();  // as finish(), without a word about failures
  RoutingRecorder(const RoutingRecorder&) = delete;
  RoutingRecorder& operator=(const RoutingRecorder&) = delete;

  // What follows belongs to turn `turn`; its positions from `prompt_tokens` on are generated.
  void begin_turn(std::uint32_t turn, std::size_t prompt_tokens) noexcept {
    turn_ = turn;
    prompt_tokens_ = prompt_tokens;
  }
  // Stops recording, writes the rest, keeps the latest choices (or says in the log why not). Fails
  // with `io` if any write of the file did.
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
  std::optional<RoutingTail> tail_;
  Record call_{*this};
  RoutingSink sink_{call_};
};

}  // namespace millrace
