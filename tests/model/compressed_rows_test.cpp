// Pooled rows: what a session keeps of them, how far it can go back, and which of them are chosen.
#include "model/compressed_rows.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/dispatch.h"
#include "model/blocks/attention_compressed.h"
#include "model/kv_cache.h"
#include "tests/kernels/values.h"

using namespace millrace;
using millrace::testing::Random;

namespace {

const KernelTable& kernels() { return *supported_kernels().back(); }

Hparams shape() {
  Hparams h;
  h.layers = 3;
  h.attention = AttentionKind::compressed;
  h.heads = {4, 4, 4};
  h.kv_heads = {1, 1, 1};
  h.head_dim = h.value_dim = 40;
  h.windows = {8, 8, 8};
  h.compression.ratios = {0, 4, 16};
  h.compression.index_heads = 3;
  h.compression.index_dim = 24;
  h.compression.index_top_k = 5;
  return h;
}

// Some rows in a cache's type, and what they hold after rounding.
struct Rows {
  std::vector<std::byte> bytes;
  CompressedRows rows;
  std::vector<double> values;

  Rows(KvType type, std::uint32_t count, std::uint32_t columns, Random& random) {
    const CompressedLayout layout{.ratio = 4, .halves = 2, .columns = columns, .rows = count};
    bytes.resize(layout.row_bytes(type));
    rows = CompressedRows(layout, type, bytes.data(), nullptr);
    const auto decode = kernels().decode_row[static_cast<std::size_t>(cache_rows::dtype(type))];
    std::vector<float> decoded(rows.stride());
    for (std::uint32_t i = 0; i < count; ++i) {
      rows.store(kernels(), i, random.floats(columns, -1, 1).data());
      decode(rows.row(i), rows.stride(), decoded.data());
      values.insert(values.end(), decoded.begin(), decoded.begin() + columns);
    }
  }
};

std::vector<std::uint32_t> choose(const KernelTable& table, const RowQuery& query, const Rows& rows,
                                  std::uint32_t visible, bool& finite) {
  SerialParallel serial;
  std::vector<float> scores(visible), scratch(row_choice_scratch_floats(query.heads));
  std::vector<std::uint32_t> order(visible), chosen(query.top_k);
  finite = choose_rows({table, serial, ActivationMode::q8}, query, rows.rows, visible,
                       scores.data(), order.data(), scratch.data(), chosen.data());
  return chosen;
}

}  // namespace

TEST_CASE("compressed rows: layouts of layers without, with chosen and with all rows") {
  const Hparams h = shape();
  CHECK(compressed_layouts(h, 0, 100).pooled.rows == 0);
  const CompressedLayouts chosen = compressed_layouts(h, 1, 103);
  CHECK(chosen.pooled.rows == 25);
  CHECK(chosen.pooled.channels() == 80);
  CHECK(chosen.pooled.pending() == 8);
  CHECK(chosen.index.columns == 24);
  CHECK(chosen.index.rows == 25);
  const CompressedLayouts all = compressed_layouts(h, 2, 103);
  CHECK(all.pooled.rows == 6);
  CHECK(all.pooled.channels() == 40);
  CHECK(all.pooled.pending() == 16);
  CHECK(all.index.rows == 0);
}

TEST_CASE("compressed rows: positions, rows and pending values of a cache do not touch") {
  const Hparams h = shape();
  for (const KvType type : {KvType::f16, KvType::f32, KvType::q8_0}) {
    auto made = KvCache::create(h, 50, type, 4);
    REQUIRE(made.has_value());
    KvCache& cache = *made;
    std::vector<float> row(40);
    const auto fill = [&](float value) {
      std::fill(row.begin(), row.end(), value);
      return row.data();
    };
    for (LayerIndex layer = 0; layer < 3; ++layer)
      for (std::uint32_t position = 0; position < 16; ++position)
        cache.store(kernels(), layer, position, fill(1), nullptr);
    for (LayerIndex layer = 1; layer < 3; ++layer) {
      CompressedRows& pooled = cache.pooled(layer);
      CompressedRows& index = cache.index(layer);
      for (std::uint32_t i = 0; i < pooled.layout().rows; ++i) pooled.store(kernels(), i, fill(2));
      for (std::uint32_t i = 0; i < index.layout().rows; ++i) index.store(kernels(), i, fill(3));
      for (CompressedRows* rows : {&pooled, &index})
        for (std::uint32_t p = 0; p < rows->layout().pending(); ++p) {
          std::fill_n(rows->values(p), rows->layout().channels(), 4.0F);
          std::fill_n(rows->scores(p), rows->layout().channels(), 5.0F);
        }
    }
    std::vector<float> decoded(64);
    const auto decode = kernels().decode_row[static_cast<std::size_t>(cache_rows::dtype(type))];
    const auto check = [&](const void* at, std::size_t columns, float value) {
      decode(static_cast<const std::byte*>(at), cache_rows::stride(columns, type), decoded.data());
      for (std::size_t i = 0; i < columns; ++i) REQUIRE(decoded[i] == Approx(value).epsilon(1e-3));
    };
    for (LayerIndex layer = 0; layer < 3; ++layer) {
      const auto* keys = static_cast<const std::byte*>(cache.keys(layer, 0));
      for (std::size_t i = 0; i < 16; ++i) check(keys + i * cache_rows::bytes(40, type), 40, 1);
      for (std::uint32_t i = 0; i < cache.pooled(layer).layout().rows; ++i)
        check(cache.pooled(layer).row(i), 40, 2);
      for (std::uint32_t i = 0; i < cache.index(layer).layout().rows; ++i)
        check(cache.index(layer).row(i), 24, 3);
      for (CompressedRows* rows : {&cache.pooled(layer), &cache.index(layer)})
        for (std::uint32_t p = 0; p < rows->layout().pending(); ++p) {
          REQUIRE(rows->values(p)[rows->layout().channels() - 1] == 4);
          REQUIRE(rows->scores(p)[0] == 5);
        }
    }
  }
}

TEST_CASE("compressed rows: a sequence can go back while its block's positions are kept") {
  CompressedRows overlapping({.ratio = 4, .halves = 2, .columns = 1, .rows = 9}, KvType::f32,
                             nullptr, nullptr);
  overlapping.set_next(18);  // positions 10 to 17 are kept
  CHECK(overlapping.keeps(0));
  CHECK(overlapping.keeps(18));
  CHECK(overlapping.keeps(17));
  CHECK(overlapping.keeps(16));  // pools 12 to 19 next
  CHECK_FALSE(overlapping.keeps(15));
  CHECK_FALSE(overlapping.keeps(19));
  overlapping.set_next(6);  // all
  CHECK(overlapping.keeps(3));
  CHECK(overlapping.keeps(5));
  CompressedRows whole({.ratio = 16, .halves = 1, .columns = 1, .rows = 9}, KvType::f32, nullptr,
                       nullptr);
  whole.set_next(40);
  CHECK(whole.keeps(33));
  CHECK(whole.keeps(32));
  CHECK_FALSE(whole.keeps(31));
  CHECK(CompressedRows().keeps(12345));
}

TEST_CASE("compressed rows: visible are all blocks that are complete, the token's own too") {
  const CompressedRows rows({.ratio = 4, .halves = 2, .columns = 1, .rows = 9}, KvType::f32,
                            nullptr, nullptr);
  CHECK(rows.visible(2) == 0);
  CHECK(rows.visible(3) == 1);
  CHECK(rows.visible(6) == 1);
  CHECK(rows.visible(7) == 2);
  CHECK(rows.visible(15) == 4);
  CHECK(CompressedRows().visible(100) == 0);
}

TEST_CASE("compressed rows: the best are chosen as in double, on every ISA and in every type") {
  Random random(51);
  for (const KvType type : {KvType::f16, KvType::f32, KvType::q8_0}) {
    for (const std::uint32_t dim : {8u, 24u, 64u}) {
      constexpr std::uint32_t heads = 5, visible = 150, top_k = 20;
      const Rows rows(type, visible, dim, random);
      std::vector<float> q = random.floats(heads * dim + row_query_slack, -1, 1);
      const std::vector<float> weights = random.floats(heads, -1, 1);
      const RowQuery query{
          .heads = heads, .dim = dim, .top_k = top_k, .q = q.data(), .weights = weights.data()};
      std::vector<double> scores(visible);
      for (std::uint32_t r = 0; r < visible; ++r)
        for (std::uint32_t h = 0; h < heads; ++h) {
          double dot = 0;
          for (std::uint32_t i = 0; i < dim; ++i)
            dot += static_cast<double>(q[h * dim + i]) * rows.values[r * dim + i];
          scores[r] += static_cast<double>(weights[h]) * std::max(0.0, dot);
        }
      std::vector<std::uint32_t> expected(visible);
      std::iota(expected.begin(), expected.end(), 0u);
      std::sort(expected.begin(), expected.end(),
                [&](std::uint32_t a, std::uint32_t b) { return scores[a] > scores[b]; });
      REQUIRE(scores[expected[top_k - 1]] - scores[expected[top_k]] > 1e-5);
      expected.resize(top_k);
      std::sort(expected.begin(), expected.end());
      for (const KernelTable* table : supported_kernels()) {
        bool finite = false;
        CHECK(choose(*table, query, rows, visible, finite) == expected);
        CHECK(finite);
      }
      q[dim] = std::numeric_limits<float>::quiet_NaN();
      bool finite = true;
      choose(kernels(), query, rows, visible, finite);
      CHECK_FALSE(finite);
    }
  }
}

TEST_CASE("compressed rows: of equal scores the lower rows are chosen") {
  Random random(52);
  const Rows rows(KvType::f32, 70, 8, random);
  const std::vector<float> q(8 + row_query_slack, 0.0F);
  const float weight = 1;
  bool finite = false;
  CHECK(choose(kernels(), {.heads = 1, .dim = 8, .top_k = 4, .q = q.data(), .weights = &weight},
               rows, 70, finite) == std::vector<std::uint32_t>{0, 1, 2, 3});
}

TEST_CASE("compressed attention: the plan's bytes are those of the buffers") {
  CompressedShape shape{.heads = 4,
                        .head_dim = 40,
                        .rotary = 8,
                        .q_latent = 24,
                        .window = 8,
                        .groups = 2,
                        .rank = 6,
                        .ratio = 4,
                        .indexed = true,
                        .index_heads = 3,
                        .index_dim = 24,
                        .index_top_k = 5};
  for (const bool indexed : {true, false}) {
    for (const std::size_t tokens : {1u, 9u, 500u}) {
      shape.indexed = indexed;
      const CompressedScratch made(shape, 80, tokens, 3);
      const std::size_t floats =
          made.row.size() + made.query.size() + made.compressor.values.size() +
          made.compressor.scores.size() + made.compressor.pooled.size() +
          made.compressor.rotation.size() + made.index_query.size() + made.index_weights.size() +
          made.index_products.size() + made.chosen.size() + made.gathered.size() +
          made.turned.size() + made.ones.size() + made.kernel.size();
      std::size_t bytes = floats * sizeof(float);
      for (const ActivationRows* rows : {&made.q_latent, &made.out, &made.low})
        bytes += ActivationRows::bytes(rows->rows(), rows->columns());
      CHECK(bytes == CompressedScratch::bytes(shape, 80, tokens, 3));
      CHECK(made.part == std::min<std::size_t>(tokens, 64));
    }
  }
}
