#include "model/kv_cache.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "kernels/dispatch.h"
#include "tests/kernels/values.h"

using namespace millrace;
using millrace::testing::Random;

namespace {

Hparams shape() {
  Hparams h;
  h.layers = 3;
  h.kv_heads = {2, 1, 3};
  h.head_dim = 8;
  h.value_dim = 5;
  return h;
}

KvCache make(KvType type) {
  auto cache = KvCache::create(shape(), 7, type);
  REQUIRE(cache.has_value());
  return *std::move(cache);
}

const KernelTable& kernels() { return *supported_kernels().back(); }

}  // namespace

TEST_CASE("kv cache: positions of a head follow each other, heads and layers do not touch") {
  const Hparams h = shape();
  KvCache cache = make(KvType::f32);
  Random random(3);
  std::vector<std::vector<float>> keys, values;  // by (layer, position)
  for (LayerIndex layer = 0; layer < h.layers; ++layer) {
    for (std::uint32_t position = 0; position < 7; ++position) {
      keys.push_back(random.floats(std::size_t{h.kv_heads[layer]} * 8));
      values.push_back(random.floats(std::size_t{h.kv_heads[layer]} * 5));
      cache.store(kernels(), layer, position, keys.back().data(), values.back().data());
    }
  }
  for (LayerIndex layer = 0; layer < h.layers; ++layer) {
    for (std::uint32_t head = 0; head < h.kv_heads[layer]; ++head) {
      const auto* k = static_cast<const float*>(cache.keys(layer, head));
      const auto* v = static_cast<const float*>(cache.values(layer, head));
      for (std::size_t position = 0; position < 7; ++position) {
        const std::size_t at = layer * 7 + position;
        REQUIRE(std::memcmp(k + position * 8, &keys[at][head * 8], 8 * sizeof(float)) == 0);
        REQUIRE(std::memcmp(v + position * 5, &values[at][head * 5], 5 * sizeof(float)) == 0);
      }
    }
  }
}

TEST_CASE("kv cache: half floats are rounded to the nearest, ties to even") {
  KvCache cache = make(KvType::f16);
  // 1 + 2^-11 lies halfway between two half floats, 1 + 3 * 2^-11 too; 65520 is beyond the last.
  const std::vector<float> k = {1, 1 + 0x1p-11F, 1 + 0x3p-11F, 1 + 0x1.8p-11F, -2, 0, 65504, 65520};
  const std::vector<std::uint16_t> expected = {0x3c00, 0x3c00, 0x3c02, 0x3c01,
                                               0xc000, 0x0000, 0x7bff, 0x7c00};
  const std::vector<float> v(5, 0.5F);
  cache.store(kernels(), 1, 6, k.data(), v.data());
  const auto* stored = static_cast<const std::uint16_t*>(cache.keys(1, 0)) + 6 * 8;
  CHECK(std::vector<std::uint16_t>(stored, stored + 8) == expected);
  const auto* values = static_cast<const std::uint16_t*>(cache.values(1, 0)) + 6 * 5;
  for (int i = 0; i < 5; ++i) CHECK(values[i] == 0x3800);
}

TEST_CASE("kv cache: the plan's bytes are what is mapped, twice as many for f32") {
  const Hparams h = shape();
  CHECK(KvCache::bytes(h, 1u << 16, KvType::f16) >= std::uint64_t{1u << 16} * 6 * 13 * 2);
  CHECK(KvCache::bytes(h, 1u << 16, KvType::f32) >= std::uint64_t{1u << 16} * 6 * 13 * 4);
  CHECK(KvCache::bytes(h, 1u << 16, KvType::f16) < KvCache::bytes(h, 1u << 16, KvType::f32));
}
