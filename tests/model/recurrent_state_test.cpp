#include "model/recurrent_state.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "model/sequence_state.h"

using namespace millrace;

namespace {

// Layers 0, 1 and 3 are delta nets.
Hparams shape() {
  Hparams h;
  h.layers = 4;
  h.attention_interval = 3;
  h.heads = {2, 2, 2, 2};
  h.kv_heads = {1, 1, 1, 1};
  h.head_dim = h.value_dim = 8;
  h.delta = {.key_heads = 2, .value_heads = 4, .key_dim = 3, .value_dim = 5, .taps = 4};
  return h;
}

RecurrentState make() {
  auto state = RecurrentState::create(shape());
  REQUIRE(state.has_value());
  return *std::move(state);
}

}  // namespace

TEST_CASE("recurrent state: heads, rows and layers do not touch, and position 0 empties a layer") {
  const DeltaSizes sizes = shape().delta;
  CHECK(sizes.channels() == 2 * 6 + 20);
  RecurrentState state = make();
  for (const LayerIndex layer : {0u, 1u, 3u}) {
    state.begin(layer, 0, 3);
    for (std::uint32_t position = 0; position < 3; ++position)
      std::fill_n(state.conv_row(layer, position), 32, static_cast<float>(100 * layer + position));
    for (std::uint32_t head = 0; head < 4; ++head)
      std::fill_n(state.matrix(layer, head), 15, static_cast<float>(100 * layer + 10 + head));
  }
  const auto all_are = [](const float* values, std::size_t count, float wanted) {
    return std::all_of(values, values + count, [&](float value) { return value == wanted; });
  };
  for (const LayerIndex layer : {0u, 1u, 3u}) {
    for (std::uint32_t position = 0; position < 3; ++position)
      CHECK(
          all_are(state.conv_row(layer, position), 32, static_cast<float>(100 * layer + position)));
    // Three rows: position 3 takes the place of position 0.
    CHECK(state.conv_row(layer, 3) == state.conv_row(layer, 0));
    for (std::uint32_t head = 0; head < 4; ++head)
      CHECK(all_are(state.matrix(layer, head), 15, static_cast<float>(100 * layer + 10 + head)));
  }
  state.begin(1, 0, 1);
  CHECK(all_are(state.conv_row(1, 2), 32, 0));
  CHECK(all_are(state.matrix(1, 3), 15, 0));
  CHECK(all_are(state.matrix(0, 3), 15, 13));
}

TEST_CASE("recurrent state: it goes on from where all layers are, or from the beginning") {
  RecurrentState state = make();
  CHECK(state.keeps(0));
  for (const LayerIndex layer : {0u, 1u, 3u}) state.begin(layer, 0, 5);
  CHECK(state.keeps(5));
  CHECK_FALSE(state.keeps(4));
  CHECK_FALSE(state.keeps(6));
  CHECK(state.keeps(0));
  state.begin(0, 5, 2);  // as when a batch fails in the middle
  CHECK_FALSE(state.keeps(5));
  CHECK_FALSE(state.keeps(7));
}

TEST_CASE("sequence state: its bytes are those of its parts, whatever the context") {
  const Hparams h = shape();
  const std::uint64_t recurrent = RecurrentState::bytes(h);
  CHECK(recurrent >= 3 * sizeof(float) * (3 * 32 + 4 * 15));
  for (const std::uint32_t context : {16u, 1u << 16})
    CHECK(SequenceState::bytes(h, context, KvType::f16, 8) ==
          KvCache::bytes(h, context, KvType::f16, 8) + recurrent);
  // One layer of four attends.
  CHECK(KvCache::bytes(h, 1u << 16, KvType::f32, 8) <
        (std::uint64_t{1} << 16) * 16 * 4 + (2u << 20));
  Hparams without = h;
  without.attention_interval = 0;
  CHECK(RecurrentState::bytes(without) == 0);
}
