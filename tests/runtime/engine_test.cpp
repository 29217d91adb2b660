// Engine: same bits under all settings of memory and batching, and a session that survives errors.
#include "runtime/engine.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/tiny_engine.h"

using namespace millrace;
using namespace millrace::test;
using namespace millrace::testing;

namespace {

SizeSpec bytes_spec(std::uint64_t bytes) {
  return {.kind = SizeSpec::Kind::bytes, .bytes = bytes, .percent = 0};
}

TinyShape moe_shape() {
  TinyShape shape;
  shape.matrices = DType::q8_0;
  shape.layers = 4;
  return shape;
}

// The number behind `flag` in a message.
std::uint64_t advised(const std::string& text, const std::string& flag) {
  const std::size_t at = text.find(flag + " ");
  INFO(text);
  REQUIRE(at != std::string::npos);
  return std::stoull(text.substr(at + flag.size() + 1));
}

std::uint64_t smallest(EngineConfig config, SizeSpec EngineConfig::*size, const char* flag) {
  config.*size = bytes_spec(1);
  const Error refused = engine_error(config);
  CHECK(refused.code == ErrorCode::memory);
  return advised(refused.what, flag);
}

// Next-token logits; the session goes on.
struct Step {
  Status status;
  std::vector<float> logits;
};
Step step(TestEngine& made, Session& session, std::vector<TokenId> ids) {
  Step result;
  result.status = made.engine->process(
      session, ids, LogitsWanted::last, [&](std::size_t index, const float* row) {
        CHECK(index + 1 == ids.size());
        result.logits.assign(row, row + made.engine->spec().hparams.vocabulary);
      });
  return result;
}

Session new_session(TestEngine& made) {
  auto session = made.engine->new_session();
  REQUIRE(session.has_value());
  return *std::move(session);
}

}  // namespace

TEST_CASE("engine: any cache and any trunk from the smallest to everything give the same bits") {
  const TempFolder folder;
  EngineConfig config = tiny_config(folder.write("m.gguf", TinyModel(moe_shape()).build()));
  const auto ids = some_ids(12);
  const std::vector<float> expected = logits_of(config, ids);
  const std::uint64_t cache = smallest(config, &EngineConfig::cache, "--cache");
  const std::uint64_t trunk = smallest(config, &EngineConfig::trunk, "--trunk");
  for (const std::uint64_t extra_cache : {std::uint64_t{0}, cache, 5 * cache}) {
    for (const std::uint64_t extra_trunk : {std::uint64_t{0}, trunk / 4}) {
      config.cache = bytes_spec(cache + extra_cache);
      config.trunk = bytes_spec(trunk + extra_trunk);
      const auto made = open_engine(config);
      CHECK(made->engine->plan().trunk.ring_bytes > 0);
      CHECK(logits_of(*made->engine, ids) == expected);
      CHECK(logits_of(*made->engine, ids, true) == expected);
    }
  }
  config.cache = bytes_spec(cache - 1);
  CHECK(engine_error(config).code == ErrorCode::memory);
  config.cache = bytes_spec(cache);
  config.trunk = bytes_spec(trunk - 1);
  CHECK(engine_error(config).code == ErrorCode::memory);
}

TEST_CASE("engine: prompts in parts of any size, on any number of threads, give the same bits") {
  const TempFolder folder;
  const std::string dense = folder.write("dense.gguf", TinyModel(dense_shape()).build());
  const std::string moe = folder.write("moe.gguf", TinyModel(moe_shape()).build());
  const auto ids = some_ids(20);
  for (const std::string& path : {dense, moe}) {
    EngineConfig config = tiny_config(path);
    const std::vector<float> expected = logits_of(config, ids);
    for (const std::uint32_t batch : {1u, 7u, 20u}) {
      for (const std::uint32_t threads : {1u, 3u}) {
        config.batch_tokens = batch;
        config.threads = threads;
        CHECK(logits_of(config, ids) == expected);
      }
    }
  }
}

TEST_CASE("engine: logits come for the last position or for all, in order") {
  const TempFolder folder;
  EngineConfig config = tiny_config(folder.write("m.gguf", TinyModel(moe_shape()).build()));
  config.batch_tokens = 4;
  const auto made = open_engine(config);
  const auto ids = some_ids(10);
  for (const LogitsWanted wanted : {LogitsWanted::none, LogitsWanted::last, LogitsWanted::all}) {
    Session session = new_session(*made);
    std::vector<std::size_t> seen;
    REQUIRE(made->engine
                ->process(session, ids, wanted,
                          [&](std::size_t index, const float*) { seen.push_back(index); })
                .has_value());
    std::vector<std::size_t> expected;
    if (wanted == LogitsWanted::last) expected = {9};
    if (wanted == LogitsWanted::all) expected = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    CHECK(seen == expected);
    CHECK(session.tokens().size() == 10);
  }
}

TEST_CASE("engine: two sessions in turn do not touch each other") {
  const TempFolder folder;
  const auto made =
      open_engine(tiny_config(folder.write("m.gguf", TinyModel(moe_shape()).build())));
  Session alone = new_session(*made);
  std::vector<std::vector<float>> expected;
  for (TokenId id = 1; id < 6; ++id) expected.push_back(step(*made, alone, {id}).logits);
  Session a = new_session(*made);
  Session b = new_session(*made);
  for (TokenId id = 1; id < 6; ++id) {
    CHECK(step(*made, a, {id}).logits == expected[static_cast<std::size_t>(id) - 1]);
    step(*made, b, {20 + id, 30});
  }
  a.clear();
  CHECK(step(*made, a, {1}).logits == expected.front());
}

TEST_CASE("engine: sessions that began alike, and then went other ways, have their own bits") {
  const TempFolder folder;
  TinyShape shape = moe_shape();
  shape.context = 512;
  EngineConfig config = tiny_config(folder.write("m.gguf", TinyModel(shape).build()));
  config.sequences = 2;
  config.threads = 1;  // more would share out the two instead
  const auto made = open_engine(config);
  const std::vector<TokenId> begun = some_ids(300);
  const std::vector<TokenId> other(begun.rbegin(), begun.rend());
  const TokenId next[] = {5, 9};
  const auto alone = [&](std::vector<TokenId> ids, TokenId last) {
    Session session = new_session(*made);
    REQUIRE(step(*made, session, std::move(ids)).status);
    return step(*made, session, {last}).logits;
  };
  const auto together = [&](Session& a, Session& b) {
    std::vector<float> rows[2];
    const SequenceTokens each[] = {{&a, {&next[0], 1}}, {&b, {&next[1], 1}}};
    REQUIRE(made->engine->process_together(each, [&](std::size_t i, const float* row) {
      rows[i].assign(row, row + made->engine->spec().hparams.vocabulary);
    }));
    return std::pair(rows[0], rows[1]);
  };
  Session a = new_session(*made), b = new_session(*made);
  REQUIRE(step(*made, a, begun).status);
  b.take_over(a, begun.size());
  const auto expected = std::pair(alone(begun, next[0]), alone(begun, next[1]));
  CHECK(together(a, b) == expected);
  // The first one begins anew, or goes back and on with other tokens: b's rows are a's no more.
  a.clear();
  REQUIRE(step(*made, a, other).status);
  b.take_over(b, begun.size());
  CHECK(together(a, b) == std::pair(alone(other, next[0]), expected.second));
  a.take_over(b, begun.size());
  a.take_over(a, 100);
  b.take_over(b, begun.size());
  REQUIRE(step(*made, a, {other.begin(), other.begin() + 200}).status);
  std::vector<TokenId> mixed(begun.begin(), begun.begin() + 100);
  mixed.insert(mixed.end(), other.begin(), other.begin() + 200);
  CHECK(together(a, b) == std::pair(alone(mixed, next[0]), expected.second));
}

TEST_CASE("engine: ids outside the vocabulary and tokens past the context are refused, no more") {
  const TempFolder folder;
  EngineConfig config = tiny_config(folder.write("m.gguf", TinyModel(moe_shape()).build()));
  config.context = 8;
  config.batch_tokens = 3;
  const auto made = open_engine(config);
  Session session = new_session(*made);
  REQUIRE(step(*made, session, {1, 2, 3}).status.has_value());
  for (const TokenId id : {TokenId{-1}, TokenId{48}, std::numeric_limits<TokenId>::max()}) {
    const Step refused = step(*made, session, {4, id});
    REQUIRE_FALSE(refused.status.has_value());
    CHECK(refused.status.error().code == ErrorCode::usage);
    CHECK_THAT(refused.status.error().what, Catch::Contains(std::to_string(id)));
    CHECK_THAT(refused.status.error().what, Catch::Contains("vocabulary of 48"));
  }
  const Step too_long = step(*made, session, {1, 2, 3, 4, 5, 6});
  REQUIRE_FALSE(too_long.status.has_value());
  CHECK(too_long.status.error().code == ErrorCode::usage);
  CHECK_THAT(too_long.status.error().what, Catch::Contains("6 tokens do not fit: 5 of 8"));
  CHECK(session.tokens().size() == 3);
  CHECK(step(*made, session, {4, 5, 6, 7, 8}).status.has_value());  // to the last position
  CHECK(session.room() == 0);
  CHECK_FALSE(step(*made, session, {9}).status.has_value());
}

TEST_CASE(
    "engine: a file that shrinks in mid-run is an io error; whole again, the session goes on") {
  const TempFolder folder;
  const std::string bytes = TinyModel(moe_shape()).build();
  const std::string path = folder.write("m.gguf", bytes);
  for (const ReaderKind reader : {ReaderKind::threads, ReaderKind::automatic}) {
    EngineConfig config = tiny_config(path);
    config.io = reader;
    config.cache = bytes_spec(smallest(config, &EngineConfig::cache, "--cache"));
    for (const bool ring : {false, true}) {
      if (ring) config.trunk = bytes_spec(smallest(config, &EngineConfig::trunk, "--trunk"));
      config.batch_tokens = 2;
      const auto made = open_engine(config);
      Session undisturbed = new_session(*made);
      REQUIRE(step(*made, undisturbed, {1, 2, 3}).status.has_value());
      const std::vector<float> expected = step(*made, undisturbed, {4, 5, 6, 7, 8}).logits;

      Session session = new_session(*made);
      REQUIRE(step(*made, session, {1, 2, 3}).status.has_value());
      // Cut behind the first part of the tensors: late layers fail, early ones do not.
      for (const std::size_t keep : {bytes.size() * 3 / 4, bytes.size() / 2, std::size_t{4096}}) {
        std::filesystem::resize_file(path, keep);
        const Step failed = step(*made, session, {4, 5, 6, 7, 8});
        REQUIRE_FALSE(failed.status.has_value());
        CHECK(failed.status.error().code == ErrorCode::io);
        CHECK_THAT(failed.status.error().what, Catch::Contains(path));
        CHECK_THAT(failed.status.error().what, Catch::Contains("truncated"));
        CHECK(session.tokens().size() == 3);
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
      }
      const Step again = step(*made, session, {4, 5, 6, 7, 8});
      REQUIRE(again.status.has_value());
      CHECK(again.logits == expected);
    }
  }
}

TEST_CASE("engine: a set cancel flag ends the run between layers; the session goes on after it") {
  const TempFolder folder;
  const auto made =
      open_engine(tiny_config(folder.write("m.gguf", TinyModel(moe_shape()).build())));
  Session session = new_session(*made);
  REQUIRE(step(*made, session, {1, 2, 3}).status.has_value());
  made->cancel = true;
  const Step cancelled = step(*made, session, {4, 5});
  REQUIRE_FALSE(cancelled.status.has_value());
  CHECK(cancelled.status.error().code == ErrorCode::cancelled);
  CHECK(session.tokens().size() == 3);
  // In the middle of a walk: the routing of layer 1 sets the flag.
  made->cancel = false;
  const auto sink = [&](const TokenPlace&, LayerIndex layer, std::span<const ExpertIndex>,
                        std::span<const float>) {
    if (layer == 1) made->cancel = true;
    CHECK(layer < 2);
  };
  const RoutingSink routing(sink);
  made->engine->set_routing_sink(&routing);
  CHECK(step(*made, session, {4, 5}).status.error().code == ErrorCode::cancelled);
  made->engine->set_routing_sink(nullptr);
  made->cancel = false;
  const Step done = step(*made, session, {4, 5});
  REQUIRE(done.status.has_value());
  Session undisturbed = new_session(*made);
  CHECK(done.logits == step(*made, undisturbed, {1, 2, 3, 4, 5}).logits);
}

TEST_CASE("engine: weights that are NaN or infinite end the run with an error, never with logits") {
  const float bad_numbers[] = {std::numeric_limits<float>::quiet_NaN(),
                               std::numeric_limits<float>::infinity()};
  TinyShape moe;
  for (const TinyShape& shape : {moe, dense_shape()}) {
    TinyModel model(shape);
    for (const BuiltTensor& tensor : std::vector<BuiltTensor>(model.tensors())) {
      for (const float number : bad_numbers) {
        TinyModel bad(shape);
        // In the first element of every row: of each expert, of each token.
        std::string& data = bad.tensor(tensor.name).data;
        for (std::size_t at = 0; at < data.size(); at += tensor.ne[0] * sizeof(float))
          std::memcpy(&data[at], &number, sizeof number);
        const TempFolder folder;
        EngineConfig config = tiny_config(folder.write("m.gguf", bad.build()));
        for (const ActivationMode mode : {ActivationMode::q8, ActivationMode::f32}) {
          config.activations = mode;
          const auto made = open_engine(config);
          Session session = new_session(*made);
          const Step failed = step(*made, session, {1, 2});
          INFO(tensor.name << " " << number);
          REQUIRE_FALSE(failed.status.has_value());
          CHECK(failed.status.error().code == ErrorCode::format);
          CHECK_THAT(failed.status.error().what, Catch::Contains("m.gguf"));
          CHECK_THAT(failed.status.error().what, Catch::Contains("NaN or infinite"));
          CHECK(failed.logits.empty());
          CHECK(session.tokens().empty());
        }
      }
    }
  }
}

TEST_CASE("engine: a model without a tokenizer runs by ids and says what it lacks") {
  const TempFolder folder;
  const auto made =
      open_engine(tiny_config(folder.write("m.gguf", TinyModel(moe_shape()).build())));
  const Status lacks = made->engine->require_tokenizer();
  REQUIRE_FALSE(lacks.has_value());
  CHECK(lacks.error().code == ErrorCode::format);
}
