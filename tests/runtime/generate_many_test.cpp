// Several sequences in step: each gives what it gives alone, bit by bit, whatever the others do.
#include "runtime/generate_many.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "model/format/open.h"
#include "tests/support/tiny_deepseek4.h"
#include "tests/support/tiny_engine.h"

using namespace millrace;
using namespace millrace::test;
using namespace millrace::testing;

namespace {

constexpr std::size_t most = 9;

// Prompts of different lengths, seeds and numbers of tokens of their own.
std::vector<GenerateOptions> some_sequences(const Engine& engine, std::size_t count) {
  const std::string text = "Once upon a time there was a little house in the middle of a wood";
  std::vector<GenerateOptions> sequences;
  for (std::size_t i = 0; i < count; ++i) {
    GenerateOptions options;
    auto ids = engine.tokenizer().encode(text.substr(i % 40, 5 + 6 * i % 40), {});
    REQUIRE(ids.has_value());
    options.prompt = *std::move(ids);
    options.tokens_max = static_cast<std::uint32_t>(3 + i * 5 % 11);
    options.sampling.seed = static_cast<std::uint32_t>(100 + i);
    sequences.push_back(std::move(options));
  }
  return sequences;
}

GenerateResult alone(Engine& engine, const GenerateOptions& options) {
  auto made = generate(engine, options, [](std::string_view) {});
  if (!made) FAIL(made.error().what);
  return *std::move(made);
}

ManyResult together(Engine& engine, std::span<const GenerateOptions> sequences) {
  std::vector<std::string> texts(sequences.size());
  auto made = generate_many(engine, sequences,
                            [&](std::size_t i, std::string_view piece) { texts[i] += piece; });
  if (!made) FAIL(made.error().what);
  REQUIRE(made->sequences.size() == sequences.size());
  for (std::size_t i = 0; i < texts.size(); ++i) CHECK(texts[i] == made->sequences[i].text);
  return *std::move(made);
}

void check_same(const GenerateResult& result, const GenerateResult& expected) {
  CHECK(result.ids == expected.ids);
  CHECK(result.text == expected.text);
  CHECK(result.state_hash == expected.state_hash);
  CHECK(result.finish == expected.finish);
  CHECK(result.seed == expected.seed);
  CHECK_FALSE(result.error.has_value());
}

EngineConfig embedded_config(std::uint32_t sequences) {
  EngineConfig config;
  config.model_path = embedded_model();
  config.threads = 2;
  config.context = 96;
  config.direct = DirectMode::off;
  config.sequences = sequences;
  return config;
}

SizeSpec percent(double share) { return {SizeSpec::Kind::percent, 0, share}; }

}  // namespace

TEST_CASE("many: 1 to 9 sequences in step have the texts and hashes that each has alone") {
  std::vector<GenerateResult> expected;
  {
    const auto made = open_engine(embedded_config(1));
    for (const GenerateOptions& options : some_sequences(*made->engine, most))
      expected.push_back(alone(*made->engine, options));
  }
  for (const ReaderKind reader : {ReaderKind::uring, ReaderKind::threads}) {
    for (const double cache : {10.0, 100.0}) {
      EngineConfig config = embedded_config(most);
      config.io = reader;
      config.cache = percent(cache);
      const auto made = open_engine(config);
      const auto sequences = some_sequences(*made->engine, most);
      for (std::size_t count = 1; count <= most; ++count) {
        CAPTURE(count, cache);
        const ManyResult result = together(*made->engine, std::span(sequences).first(count));
        for (std::size_t i = 0; i < count; ++i) check_same(result.sequences[i], expected[i]);
      }
    }
  }
}

TEST_CASE("many: 32 and 128 sequences in step have the texts and hashes that each has alone") {
  std::vector<GenerateResult> expected;
  {
    const auto made = open_engine(embedded_config(1));
    for (const GenerateOptions& options : some_sequences(*made->engine, 128))
      expected.push_back(alone(*made->engine, options));
  }
  for (const std::uint32_t count : {32u, 128u}) {
    CAPTURE(count);
    const auto made = open_engine(embedded_config(count));
    const auto sequences = some_sequences(*made->engine, count);
    const ManyResult result = together(*made->engine, sequences);
    for (std::size_t i = 0; i < count; ++i) check_same(result.sequences[i], expected[i]);
  }
}

TEST_CASE("many: with more sequences than go at a time, and prompts in small parts, the same") {
  EngineConfig config = embedded_config(3);
  config.batch_tokens = 4;
  config.cache = percent(30);
  const auto made = open_engine(config);
  CHECK(made->engine->plan().batch_tokens == 4);
  const auto sequences = some_sequences(*made->engine, most);
  const ManyResult result = together(*made->engine, sequences);
  std::uint64_t prompts = 0;
  for (std::size_t i = 0; i < most; ++i) {
    CAPTURE(i);
    check_same(result.sequences[i], alone(*made->engine, sequences[i]));
    CHECK(result.sequences[i].prompt.tokens == sequences[i].prompt.size());
    CHECK(result.sequences[i].decode.tokens + 1 == result.sequences[i].ids.size());
    prompts += sequences[i].prompt.size();
  }
  // Later prompts go through in the steps of the others.
  CHECK(result.prompt.tokens > prompts);
  CHECK(result.decode.tokens <= 3 * result.decode_steps);
  CHECK(result.summary().finish == FinishReason::length);
}

TEST_CASE("many: what is asked of a step is read once for all of its sequences") {
  EngineConfig config = embedded_config(4);
  config.cache = percent(100);
  const auto made = open_engine(config);
  auto sequences = some_sequences(*made->engine, 4);
  for (GenerateOptions& options : sequences) options = sequences.front();
  const GenerateResult one = alone(*made->engine, sequences.front());
  const ManyResult four = together(*made->engine, sequences);
  CHECK(four.decode_steps == one.decode.tokens);
  CHECK(four.decode.tokens == 4 * one.decode.tokens);
  const LoaderStats& shared = four.decode.counters.experts;
  const LoaderStats& single = one.decode.counters.experts;
  CHECK(shared.hits + shared.misses == single.hits + single.misses);
}

TEST_CASE("many: one that is cancelled and one that stops early leave the others alone") {
  const auto made = open_engine(embedded_config(3));
  auto sequences = some_sequences(*made->engine, 3);
  for (GenerateOptions& options : sequences) options.tokens_max = 12;
  const std::vector<GenerateResult> expected = {alone(*made->engine, sequences[0]),
                                                alone(*made->engine, sequences[1]),
                                                alone(*made->engine, sequences[2])};
  std::atomic<bool> cancel = false;
  sequences[0].cancel = &cancel;
  sequences[2].stop = {expected[2].text.substr(4, 2)};
  std::string got;
  auto result = generate_many(*made->engine, sequences, [&](std::size_t i, std::string_view piece) {
    if (i == 0) got += piece;
    if (got.size() > 8) cancel = true;
  });
  REQUIRE(result.has_value());
  const GenerateResult& cancelled = result->sequences[0];
  CHECK(cancelled.finish == FinishReason::cancelled);
  CHECK(cancelled.ids.size() < expected[0].ids.size());
  CHECK(expected[0].text.find(cancelled.text) == 0);
  check_same(result->sequences[1], expected[1]);
  CHECK(result->sequences[2].finish == FinishReason::stop);
  CHECK(expected[2].text.find(result->sequences[2].text) == 0);
  CHECK(result->summary().finish == FinishReason::cancelled);
}

TEST_CASE("many: a cancelled engine ends all, and those that wait as well") {
  const auto made = open_engine(embedded_config(2));
  auto sequences = some_sequences(*made->engine, 5);
  for (GenerateOptions& options : sequences) options.tokens_max = 40;
  auto result = generate_many(*made->engine, sequences,
                              [&](std::size_t, std::string_view) { made->cancel = true; });
  REQUIRE(result.has_value());
  for (const GenerateResult& each : result->sequences) {
    CHECK(each.finish == FinishReason::cancelled);
    REQUIRE(each.error.has_value());
    CHECK(each.error->code == ErrorCode::cancelled);
  }
  CHECK(result->sequences.back().ids.empty());
}

TEST_CASE("many: a full context ends one sequence with length, and the others go on") {
  EngineConfig config = embedded_config(2);
  config.context = 16;
  const auto made = open_engine(config);
  auto sequences = some_sequences(*made->engine, 2);
  sequences[0].tokens_max = 100;
  sequences[1].tokens_max = 4;
  const ManyResult result = together(*made->engine, sequences);
  CHECK(result.sequences[0].ids.size() + sequences[0].prompt.size() == 17);
  for (std::size_t i = 0; i < 2; ++i)
    check_same(result.sequences[i], alone(*made->engine, sequences[i]));
}

TEST_CASE("many: prompts and options that cannot be are refused before anything runs") {
  const auto made = open_engine(embedded_config(2));
  const auto refused = [&](auto change) {
    auto sequences = some_sequences(*made->engine, 2);
    change(sequences);
    const auto result = generate_many(*made->engine, sequences,
                                      [](std::size_t, std::string_view) { FAIL("there is text"); });
    REQUIRE_FALSE(result.has_value());
    CHECK(result.error().code == ErrorCode::usage);
  };
  using List = std::vector<GenerateOptions>;
  refused([](List& list) { list.clear(); });
  refused([](List& list) { list[1].prompt.clear(); });
  refused([](List& list) { list[1].prompt.assign(97, 1); });
  refused([](List& list) { list[1].prompt.push_back(1 << 20); });
  refused([](List& list) { list[1].tokens_max = 0; });
  refused([](List& list) { list[1].trace_path = "t.csv"; });
  refused([](List& list) { list[0].state_path = "s.f32"; });
}

namespace {

// Logits of each sequence's last token, all prompts in one call.
struct Together {
  Status status;
  std::vector<std::vector<float>> logits;
};
Together process_together(TestEngine& made, std::vector<Session>& sessions,
                          const std::vector<std::vector<TokenId>>& tokens) {
  std::vector<SequenceTokens> sequences;
  for (std::size_t i = 0; i < tokens.size(); ++i) sequences.push_back({&sessions[i], tokens[i]});
  Together result;
  result.logits.resize(tokens.size());
  result.status = made.engine->process_together(sequences, [&](std::size_t i, const float* row) {
    CHECK(result.logits[i].empty());
    result.logits[i].assign(row, row + made.engine->spec().hparams.vocabulary);
  });
  return result;
}

std::vector<Session> new_sessions(TestEngine& made, std::size_t count) {
  std::vector<Session> sessions;
  for (std::size_t i = 0; i < count; ++i) {
    auto session = made.engine->new_session();
    REQUIRE(session.has_value());
    sessions.push_back(*std::move(session));
  }
  return sessions;
}

// Prompts of 1, 8, 15 … tokens in one step, then one of a single token with longer ones.
void check_mixture(EngineConfig config) {
  config.sequences = 4;
  const auto made = open_engine(config);
  const std::uint32_t vocabulary = made->engine->spec().hparams.vocabulary;
  const std::vector<std::size_t> first = {1, 8, 15, 2}, second = {3, 1, 2, 9};
  std::vector<Session> sessions = new_sessions(*made, 4);
  std::vector<std::vector<TokenId>> begin, more;
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<TokenId> ids = some_ids(first[i] + second[i] + i, vocabulary);
    ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(i));
    begin.emplace_back(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(first[i]));
    more.emplace_back(ids.begin() + static_cast<std::ptrdiff_t>(first[i]), ids.end());
  }
  const Together prompts = process_together(*made, sessions, begin);
  REQUIRE(prompts.status.has_value());
  const Together rest = process_together(*made, sessions, more);
  REQUIRE(rest.status.has_value());
  for (std::size_t i = 0; i < 4; ++i) {
    std::vector<TokenId> ids = begin[i];
    ids.insert(ids.end(), more[i].begin(), more[i].end());
    const std::vector<float> all = logits_of(*made->engine, ids);
    const auto row = [&](std::size_t at) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(at * vocabulary);
      return std::vector<float>(from, from + vocabulary);
    };
    CAPTURE(i);
    CHECK(prompts.logits[i] == row(begin[i].size() - 1));
    CHECK(rest.logits[i] == row(ids.size() - 1));
    CHECK(std::equal(ids.begin(), ids.end(), sessions[i].tokens().begin(),
                     sessions[i].tokens().end()));
  }
}

}  // namespace

TEST_CASE("together: prompts of any lengths, in parts of any size, give the bits of each alone") {
  const TempFolder folder;
  TinyShape shape;
  shape.matrices = DType::q8_0;
  for (const std::string& path : {folder.write("moe.gguf", TinyModel(shape).build()),
                                  folder.write("dense.gguf", TinyModel(dense_shape()).build())}) {
    for (const std::uint32_t batch : {4u, 5u, 7u, 64u}) {
      EngineConfig config = tiny_config(path);
      config.batch_tokens = batch;
      CAPTURE(path, batch);
      check_mixture(config);
    }
  }
}

TEST_CASE("together: sequences whose layers keep windows and pooled rows do not mix") {
  const TempFolder folder;
  const std::string path = folder.write("v4.gguf", TinyDeepseek4().build().build());
  for (const std::uint32_t batch : {4u, 64u}) {
    EngineConfig config = tiny_config(path);
    config.batch_tokens = batch;
    check_mixture(config);
  }
}

TEST_CASE("together: sequences of every family do not mix") {
  const std::string folder = MILLRACE_SOURCE_ROOT "/tests/oracles/models";
  std::size_t families = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string path = entry.path() / "model.gguf";
    if (!std::filesystem::exists(path)) continue;
    CAPTURE(path);
    ++families;
    EngineConfig config = tiny_config(path);
    config.batch_tokens = 6;
    config.context = 64;
    check_mixture(config);
  }
  CHECK(families >= 12);
}

TEST_CASE("many: bad numbers of one sequence end it alone") {
  // A model in which the embedding of one token is NaN: its first scale, or element.
  const TempFolder folder;
  const std::string path = folder.path("m.gguf");
  std::filesystem::copy_file(embedded_model(), path);
  constexpr TokenId bad = 300;
  {
    const auto checkpoint = open_checkpoint(path);
    REQUIRE(checkpoint.has_value());
    const TensorInfo* const table = checkpoint->find_tensor("token_embd.weight");
    REQUIRE(table != nullptr);
    std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(table->offset_bytes + bad * table->row_bytes()));
    file.write("\xff\xff\xff\x7f", 4);
    REQUIRE(file.good());
  }
  EngineConfig config = embedded_config(3);
  config.model_path = path;
  const auto made = open_engine(config);
  auto sequences = some_sequences(*made->engine, 3);
  sequences[1].prompt.push_back(bad);
  for (GenerateOptions& options : sequences)
    options.sampling.biases = {{bad, -std::numeric_limits<float>::infinity()}};
  auto result = generate_many(*made->engine, sequences, [](std::size_t, std::string_view) {});
  REQUIRE(result.has_value());
  CHECK(result->sequences[1].finish == FinishReason::error);
  REQUIRE(result->sequences[1].error.has_value());
  CHECK_THAT(result->sequences[1].error->what, Catch::Contains("NaN or infinite"));
  CHECK(result->sequences[1].ids.empty());
  for (const std::size_t i : {0u, 2u})
    check_same(result->sequences[i], alone(*made->engine, sequences[i]));
}

TEST_CASE("together: a refused or failed step leaves the sessions as they were") {
  const TempFolder folder;
  EngineConfig config = tiny_config(folder.write("m.gguf", TinyModel(TinyShape()).build()));
  config.sequences = 2;
  config.context = 8;
  const auto made = open_engine(config);
  std::vector<Session> sessions = new_sessions(*made, 2);
  REQUIRE(process_together(*made, sessions, {{1, 2, 3}, {4}}).status.has_value());
  const Together past = process_together(*made, sessions, {{5}, std::vector<TokenId>(8, 1)});
  CHECK(past.status.error().code == ErrorCode::usage);
  made->cancel = true;
  const Together cancelled = process_together(*made, sessions, {{5}, {6, 7}});
  CHECK(cancelled.status.error().code == ErrorCode::cancelled);
  made->cancel = false;
  CHECK(sessions[0].tokens().size() == 3);
  CHECK(sessions[1].tokens().size() == 1);
  const Together good = process_together(*made, sessions, {{5}, {6, 7}});
  REQUIRE(good.status.has_value());
  const std::vector<float> all = logits_of(*made->engine, {1, 2, 3, 5});
  CHECK(std::equal(good.logits[0].begin(), good.logits[0].end(), all.end() - 48));
}
