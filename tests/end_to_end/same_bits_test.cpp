// One state hash, whatever the ISA, threads, cache size, reader, direct or buffered, trunk, and
// size of prompt parts. The suite runs a pairwise cover (every pair of values of every two settings
// occurs); "[.full]" runs the whole product.
#include <array>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "runtime/base/hash.h"
#include "runtime/generate.h"
#include "tests/support/test_engine.h"

using namespace millrace;
using namespace millrace::test;

namespace {

constexpr std::size_t setting_count = 9;
using Choice = std::array<std::size_t, setting_count>;  // a value's index for each setting

struct Settings {
  std::vector<std::string> isas;
  std::vector<std::uint32_t> threads = {1, 2, 5};
  std::vector<std::uint64_t> caches;  // bytes; smallest, a third, everything
  std::vector<ReaderKind> readers = {ReaderKind::uring, ReaderKind::threads};
  std::vector<DirectMode> direct = {DirectMode::automatic, DirectMode::off};
  std::vector<std::uint64_t> trunks;  // bytes: ring only, some layers, all
  std::vector<std::uint32_t> batches = {1, 7, 512};
  std::vector<std::string> policies = {eviction_policy_names().begin(),
                                       eviction_policy_names().end()};
  std::vector<std::string> prefetches = {"off", "router2", "previous", "wrong"};

  Choice counts() const {
    return {isas.size(),   threads.size(), caches.size(),   readers.size(),   direct.size(),
            trunks.size(), batches.size(), policies.size(), prefetches.size()};
  }

  EngineConfig config(const Choice& choice) const {
    EngineConfig made;
    made.model_path = embedded_model();
    made.isa = isas[choice[0]];
    made.threads = threads[choice[1]];
    made.cache = {SizeSpec::Kind::bytes, caches[choice[2]], 0};
    made.io = readers[choice[3]];
    made.direct = direct[choice[4]];
    made.trunk = {SizeSpec::Kind::bytes, trunks[choice[5]], 0};
    made.batch_tokens = batches[choice[6]];
    made.policy = policies[choice[7]];
    made.prefetch = prefetches[choice[8]];
    made.context = 128;
    return made;
  }

  std::string describe(const Choice& choice) const {
    const EngineConfig made = config(choice);
    return made.isa + ", threads " + std::to_string(made.threads) + ", cache " +
           std::to_string(made.cache.bytes) + ", " +
           (made.io == ReaderKind::uring ? "uring" : "threads") + ", direct " +
           (made.direct == DirectMode::off ? "off" : "auto") + ", trunk " +
           std::to_string(made.trunk.bytes) + ", -ub " + std::to_string(made.batch_tokens) +
           ", policy " + made.policy + ", prefetch " + made.prefetch;
  }
};

Settings make_settings() {
  Settings settings;
  for (const KernelTable* kernels : supported_kernels()) settings.isas.emplace_back(kernels->name);
  EngineConfig config;
  config.model_path = embedded_model();
  config.direct =
      DirectMode::off;  // the smallest sizes are larger with O_DIRECT: taken with a margin below
  const auto engine = open_engine(config);
  const Plan& plan = engine->engine->plan();
  const std::uint64_t margin = 96 * KiB;  // windows rounded to blocks
  settings.caches = {plan.slots.smallest_bytes + margin, plan.slots.largest_bytes / 3,
                     plan.slots.largest_bytes * 2};
  const std::uint64_t layers = plan.trunk.pinned_bytes;
  settings.trunks = {plan.trunk.smallest_bytes + margin, plan.trunk.smallest_bytes + layers / 2,
                     2 * layers + plan.trunk.total_bytes()};
  return settings;
}

// Rows of which every pair of values of every two settings occurs in at least one: greedily, a row
// at a time.
std::vector<Choice> pairwise_cover(const Choice& counts) {
  std::set<std::array<std::size_t, 4>> missing;  // setting a, value, setting b > a, value
  for (std::size_t a = 0; a < setting_count; ++a)
    for (std::size_t b = a + 1; b < setting_count; ++b)
      for (std::size_t i = 0; i < counts[a]; ++i)
        for (std::size_t j = 0; j < counts[b]; ++j) missing.insert({a, i, b, j});
  std::vector<Choice> rows;
  while (!missing.empty()) {
    const auto first = *missing.begin();
    Choice row{};
    std::array<bool, setting_count> fixed{};
    row[first[0]] = first[1];
    row[first[2]] = first[3];
    fixed[first[0]] = fixed[first[2]] = true;
    for (std::size_t a = 0; a < setting_count; ++a) {
      if (fixed[a]) continue;
      std::size_t best = 0;
      int best_gain = -1;
      for (std::size_t value = 0; value < counts[a]; ++value) {
        int gain = 0;
        for (std::size_t b = 0; b < setting_count; ++b) {
          if (!fixed[b]) continue;
          gain += static_cast<int>(a < b ? missing.count({a, value, b, row[b]})
                                         : missing.count({b, row[b], a, value}));
        }
        if (gain <= best_gain) continue;
        best = value;
        best_gain = gain;
      }
      row[a] = best;
      fixed[a] = true;
    }
    for (std::size_t a = 0; a < setting_count; ++a)
      for (std::size_t b = a + 1; b < setting_count; ++b) missing.erase({a, row[a], b, row[b]});
    rows.push_back(row);
  }
  return rows;
}

struct Outcome {
  std::uint64_t hash;
  std::vector<TokenId> ids;
};

Outcome run(const Settings& settings, const Choice& choice) {
  const auto engine = open_engine(settings.config(choice));
  GenerateOptions options;
  const auto prompt = engine->engine->tokenizer().encode(
      "The wolf looked at the old woman, and the old woman looked at the wolf; and neither of them "
      "said a word.",
      {});
  REQUIRE(prompt.has_value());
  options.prompt = *prompt;
  options.tokens_max = 12;
  options.sampling.seed = 7;
  const auto result = generate(*engine->engine, options, [](std::string_view) {});
  if (!result) FAIL(result.error().what);
  if (result->error) FAIL(result->error->what);
  return {result->state_hash, result->ids};
}

void check_rows(const Settings& settings, const std::vector<Choice>& rows) {
  const Outcome reference = run(settings, rows.front());
  for (const Choice& row : rows) {
    const Outcome outcome = run(settings, row);
    INFO(settings.describe(row) << " against " << settings.describe(rows.front()));
    CHECK(hash_hex(outcome.hash) == hash_hex(reference.hash));
    CHECK(outcome.ids == reference.ids);
  }
}

}  // namespace

TEST_CASE("same bits: a pairwise cover of all settings gives one state hash") {
  const Settings settings = make_settings();
  const auto rows = pairwise_cover(settings.counts());
  WARN(rows.size() << " runs over " << settings.isas.size() << " ISAs");
  REQUIRE(rows.size() >= settings.isas.size() * 3);
  check_rows(settings, rows);
}

TEST_CASE("same bits: the whole product of settings gives one state hash", "[.full]") {
  const Settings settings = make_settings();
  const Choice counts = settings.counts();
  std::vector<Choice> rows;
  Choice row{};
  for (bool more = true; more;) {
    rows.push_back(row);
    more = false;
    for (std::size_t a = 0; a < setting_count && !more; ++a) {
      row[a] = (row[a] + 1) % counts[a];
      more = row[a] != 0;
    }
  }
  WARN(rows.size() << " runs");
  check_rows(settings, rows);
}
