// Every family's logits: the same bits whatever the ISA, the threads, the size of prompt parts, the
// cache and the trunk, for each type of KV cache. The prompts are long enough to cross parts of the
// attention and to move sliding windows on. (The embedded model goes through the full cover of
// settings in same_bits_test.cpp.)
#include <catch2/catch.hpp>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/dispatch.h"
#include "runtime/evaluate.h"
#include "tests/support/allocation_meter.h"
#include "tests/support/oracle_folder.h"
#include "tests/support/test_engine.h"

using namespace millrace;
using namespace millrace::test;

namespace {

constexpr std::size_t prompt_tokens = 270;

struct Run {
  std::vector<float> rows;
  std::vector<TokenId> greedy;
  bool operator==(const Run& other) const {
    return rows.size() == other.rows.size() && greedy == other.greedy &&
           std::memcmp(rows.data(), other.rows.data(), rows.size() * sizeof(float)) == 0;
  }
};

Run run(const OracleFolder& oracle, const EngineConfig& config) {
  const auto engine = open_engine(config);
  std::vector<TokenId> prompt;
  for (std::size_t i = 0; i < prompt_tokens; ++i)
    prompt.push_back(oracle.prompt[(i * (1 + i / 37)) % oracle.prompt.size()]);
  Run out;
  const auto done = run_logits(
      *engine->engine, {prompt, false, 12},
      [&](std::size_t, const float* row) {
        out.rows.insert(out.rows.end(), row, row + oracle.vocabulary);
        return true;
      },
      out.greedy);
  if (!done) FAIL(oracle.name << ": " << done.error().what);
  return out;
}

EngineConfig plain(const OracleFolder& oracle) {
  EngineConfig config;
  config.model_path = oracle.model_path;
  config.threads = 1;
  config.context = 512;
  config.isa = supported_kernels().back()->name;
  return config;
}

// The same with as little memory as works.
EngineConfig small(EngineConfig config) {
  config.direct = DirectMode::off;
  const auto engine = open_engine(config);
  const Plan& plan = engine->engine->plan();
  const std::uint64_t margin = 96 * KiB;  // windows rounded to blocks
  config.trunk = {SizeSpec::Kind::bytes, plan.trunk.smallest_bytes + margin, 0};
  if (plan.slots.slots > 0)
    config.cache = {SizeSpec::Kind::bytes, plan.slots.smallest_bytes + margin, 0};
  return config;
}

// Against `base`: every ISA, with few threads or many, small parts or large ones, all in memory or
// as little as works.
void check_settings(const OracleFolder& oracle, const EngineConfig& base) {
  const Run expected = run(oracle, base);
  std::size_t index = 0;
  for (const KernelTable* kernels : supported_kernels()) {
    EngineConfig config = index % 2 == 0 ? small(base) : base;
    config.isa = kernels->name;
    config.threads = index % 2 == 0 ? 5 : 2;
    config.batch_tokens = index % 2 == 0 ? 7 : 100;
    INFO(oracle.name << ", " << config.isa << ", threads " << config.threads << ", -ub "
                     << config.batch_tokens);
    CHECK(run(oracle, config) == expected);
    ++index;
  }
}

std::vector<OracleFolder> oracles() {
  const std::string folder = MILLRACE_SOURCE_ROOT "/tests/oracles/models";
  std::vector<OracleFolder> list;
  for (const std::string& name : list_oracles(folder))
    list.push_back(read_oracle(folder + "/" + name));
  return list;
}

}  // namespace

TEST_CASE("families: one result for every ISA, number of threads, prompt part, cache and trunk") {
  for (const OracleFolder& oracle : oracles()) check_settings(oracle, plain(oracle));
}

TEST_CASE("families: a prompt gives the same taken token by token") {
  for (const OracleFolder& oracle : oracles()) {
    EngineConfig config = plain(oracle);
    const Run expected = run(oracle, config);
    config.batch_tokens = 1;
    INFO(oracle.name);
    CHECK(run(oracle, config) == expected);
  }
}

TEST_CASE("families: the same with float activations and other types of KV cache") {
  for (const OracleFolder& oracle : oracles()) {
    EngineConfig config = plain(oracle);
    config.kv = KvType::q8_0;
    check_settings(oracle, config);
    config.kv = KvType::f32;
    config.activations = ActivationMode::f32;
    check_settings(oracle, config);
  }
}

TEST_CASE("families: steady decode allocates nothing") {
  for (const OracleFolder& oracle : oracles()) {
    EngineConfig config = plain(oracle);
    config.threads = 2;
    const auto made = open_engine(config);
    auto session = made->engine->new_session();
    REQUIRE(session.has_value());
    TokenId next = 1;
    const auto decode = [&](unsigned tokens) {
      for (unsigned i = 0; i < tokens; ++i) {
        const TokenId id = next;
        const Status done = made->engine->process(
            *session, {&id, 1}, LogitsWanted::last, [&](std::size_t, const float* row) {
              next = (id * 31 + 7 + (row[0] > 0 ? 1 : 0)) % static_cast<int>(oracle.vocabulary);
            });
        if (!done) FAIL(done.error().what);
      }
    };
    decode(40);
    testing::reset_allocations();
    decode(20);
    const std::uint64_t calls = testing::allocations().calls;
    INFO(oracle.name);
    CHECK(calls == 0);
  }
}
