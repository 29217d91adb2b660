#include "model/tokenizer/merger.h"

#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "tests/model/tokenizer/tokenizer_world.h"

using namespace millrace;
using millrace::testing::below;

namespace {

using Table = std::map<std::pair<TokenId, TokenId>, Merge>;

std::vector<TokenId> merged(const Table& table, const std::vector<TokenId>& ids) {
  Merger merger;
  for (std::size_t i = 0; i < ids.size(); ++i) merger.add(i, 1, ids[i]);
  merger.run([&](const Merger::Symbol& left, const Merger::Symbol& right) {
    const auto found = table.find({left.id, right.id});
    return found == table.end() ? Merge{} : found->second;
  });
  std::vector<TokenId> out;
  merger.for_each([&](const Merger::Symbol& symbol) { out.push_back(symbol.id); });
  return out;
}

// The definition: look at all pairs, join the best, again.
std::vector<TokenId> merged_slowly(const Table& table, std::vector<TokenId> ids) {
  while (true) {
    std::size_t best = ids.size();
    Merge best_merge;
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      const auto found = table.find({ids[i], ids[i + 1]});
      if (found == table.end() || found->second.order >= best_merge.order) continue;
      best = i;
      best_merge = found->second;
    }
    if (best == ids.size()) return ids;
    ids[best] = best_merge.result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

}  // namespace

TEST_CASE("merger: the lowest order first, the leftmost of equals") {
  const Table table = {
      {{1, 2}, {5, 12}}, {{2, 3}, {4, 23}}, {{1, 1}, {6, 11}}, {{11, 1}, {7, 111}}};
  CHECK(merged(table, {1, 2, 3}) == std::vector<TokenId>{1, 23});
  CHECK(merged(table, {1, 2, 2, 3}) == std::vector<TokenId>{12, 23});
  CHECK(merged(table, {1, 1, 1}) == std::vector<TokenId>{111});
  CHECK(merged(table, {1, 1, 1, 1}) == std::vector<TokenId>{11, 11});
  CHECK(merged(table, {}).empty());
  CHECK(merged(table, {9}) == std::vector<TokenId>{9});
}

TEST_CASE("merger: agrees with the definition on random tables and rows") {
  std::mt19937 random(11);
  for (int round = 0; round < 300; ++round) {
    Table table;
    const unsigned tokens = 3 + below(random, 5);
    for (unsigned i = 0; i < 25; ++i) {
      const auto pick = [&] { return static_cast<TokenId>(below(random, tokens + i)); };
      // Few orders, so that ties are common.
      table.insert({{pick(), pick()}, {below(random, 6), static_cast<TokenId>(tokens + i)}});
    }
    std::vector<TokenId> row(below(random, 60));
    for (TokenId& id : row) id = static_cast<TokenId>(below(random, tokens));
    INFO("round " << round);
    CHECK(merged(table, row) == merged_slowly(table, row));
  }
}
