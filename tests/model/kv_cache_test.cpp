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

TEST_CASE("kv cache: layers of one size lie together, so that small ones fill huge pages") {
  Hparams h = shape();
  h.kv_heads = {2, 1, 2};
  auto cache = KvCache::create(h, 1000, KvType::f16);
  REQUIRE(cache.has_value());
  const auto* const first = static_cast<const std::byte*>(cache->keys(0, 0));
  const std::ptrdiff_t bytes = 1000 * 2 * (8 + 5) * 2;
  CHECK(static_cast<const std::byte*>(cache->keys(2, 0)) - first == (bytes + 4095) / 4096 * 4096);
  CHECK(KvCache::bytes(h, 1000, KvType::f16) < 3 * bytes);
}

TEST_CASE("kv cache: a windowed layer moves on and keeps what the next tokens look back at") {
  Hparams h = shape();
  h.windows = {4, 0, 4};
  constexpr std::uint32_t context = 100;
  auto made = KvCache::create(h, context, KvType::f32, 3);  // rows: 4 + 4
  REQUIRE(made.has_value());
  KvCache cache = *std::move(made);
  const auto value_at = [](LayerIndex layer, std::uint32_t position, std::size_t i) {
    return static_cast<float>(layer * 1000 + position) + static_cast<float>(i) / 64;
  };
  const auto check = [&](LayerIndex layer, std::uint32_t first, std::uint32_t last) {
    for (std::uint32_t head = 0; head < h.kv_heads[layer]; ++head)
      for (std::uint32_t position = first; position <= last; ++position) {
        const std::size_t row = position - cache.origin(layer);
        const float k =
            static_cast<const float*>(cache.keys(layer, head))[row * cache.key_stride(layer) + 2];
        const float v = static_cast<const float*>(
            cache.values(layer, head))[row * cache.value_stride(layer) + 1];
        REQUIRE(k == value_at(layer, position, head * 8 + 2));
        REQUIRE(v == value_at(layer, position, head * 5 + 1) + 0.5F);
      }
  };
  std::uint32_t position = 0;
  for (const std::uint32_t count : {3u, 1u, 2u, 3u, 1u, 1u, 1u, 3u, 3u, 3u, 1u, 2u}) {
    for (LayerIndex layer = 0; layer < h.layers; ++layer) {
      cache.make_room(layer, position, count);
      for (std::uint32_t next = position; next < position + count; ++next) {
        std::vector<float> k, v;
        for (std::size_t i = 0; i < h.kv_heads[layer] * std::size_t{8}; ++i)
          k.push_back(value_at(layer, next, i));
        for (std::size_t i = 0; i < h.kv_heads[layer] * std::size_t{5}; ++i)
          v.push_back(value_at(layer, next, i) + 0.5F);
        cache.store(kernels(), layer, next, k.data(), v.data());
      }
      // The first token of the batch sees 3 positions before itself.
      const std::uint32_t first = layer == 1 || position < 3 ? 0 : position - 3;
      check(layer, first, position + count - 1);
    }
    position += count;
  }
  CHECK(cache.origin(1) == 0);
  CHECK(cache.origin(0) > 0);
  CHECK(cache.keeps(position));
  CHECK(cache.keeps(0));
  CHECK_FALSE(cache.keeps(5));
  cache.make_room(0, 0, 3);  // from the beginning again
  CHECK(cache.origin(0) == 0);
}

TEST_CASE("kv cache: values that are the beginnings of the keys take no room of their own") {
  Hparams h = shape();
  h.attention = AttentionKind::mla;
  h.kv_latent = 40;
  h.rotary = 24;
  for (const KvType type : {KvType::f16, KvType::f32, KvType::q8_0}) {
    auto cache = KvCache::create(h, 5, type);
    REQUIRE(cache.has_value());
    CHECK(cache->keys(1, 0) == cache->values(1, 0));
    CHECK(cache->key_stride(1) == 64);
    CHECK(cache->value_stride(1) == 64);
  }
  const std::uint64_t rows = 1u << 20;
  CHECK(KvCache::bytes(h, 1u << 20, KvType::q8_0) >= rows * 3 * 68);
  CHECK(KvCache::bytes(h, 1u << 20, KvType::q8_0) < rows * 3 * 68 + (1u << 23));
}

TEST_CASE("kv cache: rows of 8 bits are padded to whole blocks") {
  KvCache cache = make(KvType::q8_0);  // heads of 8, values of 5
  CHECK(cache.key_stride(0) == 32);
  CHECK(cache.value_stride(0) == 32);
  Random random(9);
  const std::vector<float> k = random.floats(16);
  const std::vector<float> v = random.floats(10);
  cache.store(kernels(), 0, 3, k.data(), v.data());
  std::vector<std::byte> expected(34);
  kernels().to_q8_0(&v[5], 5, expected.data());
  const auto* row = static_cast<const std::byte*>(cache.values(0, 1)) + 3 * 34;
  CHECK(std::memcmp(row, expected.data(), 34) == 0);
}
