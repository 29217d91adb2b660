// Engines over TinyModels, and their logits as bits.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "runtime/evaluate.h"
#include "tests/support/temp_folder.h"
#include "tests/support/test_engine.h"
#include "tests/support/tiny_model.h"

namespace millrace::testing {

inline EngineConfig tiny_config(const std::string& path) {
  EngineConfig config;
  config.model_path = path;
  config.threads = 2;
  config.direct = DirectMode::off;
  config.io = ReaderKind::threads;
  return config;
}

// Some ids of the tiny vocabulary, no two neighbours equal.
inline std::vector<TokenId> some_ids(std::size_t count, std::uint32_t vocabulary = 48) {
  std::vector<TokenId> ids;
  for (std::size_t i = 0; i < count; ++i)
    ids.push_back(static_cast<TokenId>((i * i * 7 + i * 3 + 1) % vocabulary));
  return ids;
}

// Logits of all positions, in a new session.
inline std::vector<float> logits_of(Engine& engine, const std::vector<TokenId>& ids,
                                    bool one_by_one = false) {
  std::vector<float> rows;
  std::vector<TokenId> greedy;
  const Status done = run_logits(
      engine, {ids, one_by_one, 0},
      [&](std::size_t position, const float* row) {
        CHECK(rows.size() == position * engine.spec().hparams.vocabulary);
        rows.insert(rows.end(), row, row + engine.spec().hparams.vocabulary);
        return true;
      },
      greedy);
  if (!done) FAIL(done.error().what);
  REQUIRE(rows.size() == ids.size() * engine.spec().hparams.vocabulary);
  return rows;
}

inline std::vector<float> logits_of(const EngineConfig& config, const std::vector<TokenId>& ids,
                                    bool one_by_one = false) {
  const auto made = test::open_engine(config);
  return logits_of(*made->engine, ids, one_by_one);
}

}  // namespace millrace::testing
