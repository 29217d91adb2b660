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
