// Attention over the cache: a batch whose tokens go together, and the same without the kernels for
// that, token by token.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "kernels/dispatch.h"
#include "model/blocks/attention_common.h"
#include "tests/kernels/values.h"

using namespace millrace;
using millrace::testing::Random;

namespace {

constexpr std::uint32_t heads = 12, kv_heads = 3, head_dim = 32, value_dim = 20;

// A sequence with random keys and values at positions 0 .. count - 1.
SequenceState filled(KvType type, std::uint32_t count, std::uint64_t seed) {
  Hparams h;
  h.layers = 1;
  h.kv_heads = {kv_heads};
  h.head_dim = head_dim;
  h.value_dim = value_dim;
  auto made = SequenceState::create(h, count, type, count);
  REQUIRE(made.has_value());
  Random random(seed);
  for (std::uint32_t position = 0; position < count; ++position)
    made->kv.store(*supported_kernels().back(), 0, position,
                   random.floats(kv_heads * head_dim).data(),
                   random.floats(kv_heads * value_dim).data());
  return *std::move(made);
}

std::vector<float> attend_all(const KernelTable& kernels, PanelScratch panels,
                              const std::vector<TokenPlace>& tokens, std::uint32_t window) {
  const std::vector<float> q = Random(7).floats(tokens.size() * heads * head_dim, -3, 3);
  const std::vector<float> sinks = Random(8).floats(heads, -1, 2);
  constexpr std::size_t stride = heads * value_dim + 4;
  std::vector<float> out(tokens.size() * stride);
  const std::size_t floats = attention_run_floats(head_dim, value_dim);
  std::vector<float> scratch(floats);
  SerialParallel serial;
  attend({kernels, serial, ActivationMode::q8, panels}, 0, tokens,
         {.heads = heads,
          .kv_heads = kv_heads,
          .head_dim = head_dim,
          .value_dim = value_dim,
          .window = window,
          .scale = 0.2F,
          .sinks = sinks.data(),
          .q = q.data(),
          .out = out.data(),
          .out_stride = stride,
          .scratch = scratch.data(),
          .scratch_floats = floats});
  return out;
}

}  // namespace

TEST_CASE("attend: tokens that go together have the bits of each alone, in any mixture") {
  for (const KvType type : {KvType::f16, KvType::f32, KvType::q8_0}) {
    SequenceState one = filled(type, 420, 1), other = filled(type, 90, 2);
    std::vector<TokenPlace> tokens;  // the end of one sequence, two of another, the first again
    for (std::uint32_t p = 100; p < 400; ++p) tokens.push_back({0, p, &one});
    for (std::uint32_t p = 60; p < 62; ++p) tokens.push_back({0, p, &other});
    for (std::uint32_t p = 400; p < 420; ++p) tokens.push_back({0, p, &one});
    for (const KernelTable* table : supported_kernels()) {
      const PanelMemory panels(*table, 512, 1);
      for (const std::uint32_t window : {0u, 50u}) {
        INFO(table->name << ", type " << static_cast<int>(type) << ", window " << window);
        const std::vector<float> expected = attend_all(*table, {}, tokens, window);
        const std::vector<float> together = attend_all(*table, panels.view(), tokens, window);
        CHECK(std::memcmp(expected.data(), together.data(), expected.size() * 4) == 0);
      }
    }
  }
}

namespace {

void store_random(SequenceState& state, std::uint32_t begin, std::uint32_t end,
                  std::uint64_t seed) {
  Random random(seed);
  for (std::uint32_t position = begin; position < end; ++position)
    state.kv.store(*supported_kernels().back(), 0, position,
                   random.floats(kv_heads * head_dim).data(),
                   random.floats(kv_heads * value_dim).data());
}

// Four sequences: the first `shared[i]` positions of sequence i are the first one's.
std::vector<SequenceState> begun_alike(KvType type, const std::vector<std::uint32_t>& shared) {
  std::vector<SequenceState> made;
  made.push_back(filled(type, 800, 1));
  for (std::size_t i = 1; i < shared.size(); ++i) {
    made.push_back(filled(type, 800, 1 + i));
    made[i].copy_from(made[0], shared[i]);
    store_random(made[i], shared[i], 800, 10 + i);
  }
  return made;
}

}  // namespace

TEST_CASE("attend: a beginning that sequences share is read once, with the bits of each alone") {
  for (const KvType type : {KvType::f16, KvType::f32, KvType::q8_0}) {
    for (const KernelTable* table : supported_kernels()) {
      INFO(table->name << ", type " << static_cast<int>(type));
      auto states = begun_alike(type, {0, 600, 512, 700});
      std::vector<TokenPlace> tokens;
      const std::uint32_t positions[] = {799, 600, 520, 701};
      for (std::size_t i = 0; i < states.size(); ++i)
        tokens.push_back({0, positions[i], &states[i]});
      const PanelMemory panels(*table, 512, 1);
      const std::vector<float> alone = attend_all(*table, {}, tokens, 0);
      const std::vector<float> together = attend_all(*table, panels.view(), tokens, 0);
      CHECK(std::memcmp(alone.data(), together.data(), alone.size() * 4) == 0);
      if (panels.view().kernels(0) == nullptr) continue;
      // The others' copies of it are not looked at; what is behind it is.
      for (std::size_t i = 1; i < states.size(); ++i) store_random(states[i], 0, 512, 50);
      CHECK(attend_all(*table, panels.view(), tokens, 0) == together);
      store_random(states[2], 515, 516, 51);
      CHECK(attend_all(*table, panels.view(), tokens, 0) != together);
    }
  }
}

TEST_CASE("attend: rows are not taken for shared that a sequence has replaced") {
  const KernelTable& table = *supported_kernels().back();
  const PanelMemory panels(table, 512, 1);
  const auto same_as_alone = [&](std::vector<SequenceState>& states) {
    std::vector<TokenPlace> tokens;
    for (SequenceState& state : states) tokens.push_back({0, 790, &state});
    const std::vector<float> alone = attend_all(table, {}, tokens, 0);
    return std::memcmp(alone.data(), attend_all(table, panels.view(), tokens, 0).data(),
                       alone.size() * 4) == 0;
  };
  auto states = begun_alike(KvType::f16, {0, 700, 700});
  CHECK(same_as_alone(states));
  states[0].replace_from(300);  // the one that all began with
  store_random(states[0], 300, 800, 60);
  CHECK(same_as_alone(states));
  states[1].replace_from(0);
  CHECK(states[1].lineage.line != states[0].lineage.line);
  store_random(states[1], 0, 800, 61);
  CHECK(same_as_alone(states));
  states[1].copy_from(states[2], 650);  // of a copy: no more than both have of the line
  store_random(states[1], 650, 800, 62);
  CHECK(states[1].lineage.positions == 650);
  CHECK(same_as_alone(states));
}
