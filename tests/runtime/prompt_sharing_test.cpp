// Prompts that begin alike: who goes first, and that what is taken over gives the bits of each
// sequence alone.
#include "runtime/prompt_sharing.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <vector>

#include "runtime/generate_many.h"
#include "tests/support/tiny_deepseek4.h"
#include "tests/support/tiny_engine.h"

using namespace millrace;
using namespace millrace::test;
using namespace millrace::testing;

namespace {

using Ids = std::vector<TokenId>;

std::vector<PromptTurn> turns_of(const std::vector<PromptPlace>& prompts, std::size_t least) {
  std::vector<PromptTurn> turns(prompts.size());
  plan_turns(prompts, least, turns);
  return turns;
}

std::vector<std::size_t> tokens_of(const std::vector<PromptPlace>& prompts, std::size_t least) {
  std::vector<std::size_t> tokens;
  for (const PromptTurn& turn : turns_of(prompts, least)) tokens.push_back(turn.tokens);
  return tokens;
}

// Everything that a prompt can be to the ones before it.
std::vector<Ids> kindred_prompts(std::uint32_t vocabulary) {
  const Ids base = some_ids(45, vocabulary);
  const auto first = [&](std::size_t count) {
    return Ids(base.begin(), base.begin() + static_cast<std::ptrdiff_t>(count));
  };
  Ids other = first(36), stranger(base.rbegin(), base.rend());
  for (const TokenId id : {5, 9, 2, 7, 11}) other.push_back(id);
  stranger[0] = base[0] == 3 ? 4 : 3;
  return {first(40), first(40), other, first(20), stranger, other, first(45), first(40)};
}

std::vector<GenerateOptions> kindred(std::uint32_t vocabulary) {
  std::vector<GenerateOptions> sequences;
  for (const Ids& ids : kindred_prompts(vocabulary)) {
    GenerateOptions& made = sequences.emplace_back();
    made.prompt = ids;
    made.ignore_eos = true;
    made.tokens_max = static_cast<std::uint32_t>(3 + sequences.size() * 3 % 7);
    made.sampling.seed = static_cast<std::uint32_t>(sequences.size());
  }
  return sequences;
}

// Returns how many tokens were taken over.
std::uint64_t check_kindred(EngineConfig config) {
  config.sequences = 4;
  config.context = 64;
  const auto made = open_engine(config);
  const auto sequences = kindred(made->engine->spec().hparams.vocabulary);
  auto result = generate_many(*made->engine, sequences, [](std::size_t, std::string_view) {});
  if (!result) FAIL(result.error().what);
  for (std::size_t i = 0; i < sequences.size(); ++i) {
    CAPTURE(i);
    auto alone = generate(*made->engine, sequences[i], [](std::string_view) {});
    REQUIRE(alone.has_value());
    CHECK(result->sequences[i].ids == alone->ids);
    CHECK(result->sequences[i].state_hash == alone->state_hash);
    CHECK_FALSE(result->sequences[i].error.has_value());
    CHECK(result->sequences[i].tokens_taken_over <= sequences[i].prompt.size());
  }
  CHECK(result->sequences[0].tokens_taken_over == 0);
  CHECK(result->sequences[1].tokens_taken_over == 40);
  CHECK(result->sequences[4].tokens_taken_over == 0);
  return result->summary().tokens_taken_over;
}

std::vector<std::string> family_paths() {
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(MILLRACE_SOURCE_ROOT "/tests/oracles/models")) {
    const std::string path = entry.path() / "model.gguf";
    if (std::filesystem::exists(path)) paths.push_back(path);
  }
  CHECK(paths.size() >= 12);
  return paths;
}

// Logits of the last of `tokens`.
std::vector<float> last_logits(Engine& engine, Session& session, std::span<const TokenId> tokens) {
  std::vector<float> logits;
  const Status done =
      engine.process(session, tokens, LogitsWanted::last, [&](std::size_t, const float* row) {
        logits.assign(row, row + engine.spec().hparams.vocabulary);
      });
  if (!done) FAIL(done.error().what);
  return logits;
}

// A session that took over the first `count` of `has` tokens goes on like one that computed them.
void check_take_over(Engine& engine, const Ids& ids, std::size_t has, std::size_t count) {
  CAPTURE(has, count);
  auto source = engine.new_session(), fresh = engine.new_session(), taker = engine.new_session();
  const std::span<const TokenId> all(ids);
  last_logits(engine, *source, all.first(has));
  last_logits(engine, *taker, all.subspan(3, 9));  // what it had before is gone
  REQUIRE(source->keeps(count));
  taker->take_over(*source, count);
  CHECK(taker->tokens().size() == count);
  last_logits(engine, *fresh, all.first(count));
  // Past the end of windows and of blocks that are pooled.
  for (std::size_t at = count; at < ids.size(); ++at)
    REQUIRE(last_logits(engine, *taker, all.subspan(at, 1)) ==
            last_logits(engine, *fresh, all.subspan(at, 1)));
}

}  // namespace

TEST_CASE("prompt sharing: the first one goes up to where they part, the others wait") {
  const Ids a = {1, 2, 3, 4, 5, 6, 7}, b = {1, 2, 3, 4, 9, 9}, c = {1, 2, 3, 8}, d = {7, 7};
  CHECK(shared_tokens(a, b) == 4);
  CHECK(shared_tokens(c, a) == 3);
  CHECK(shared_tokens(b, Ids{}) == 0);
  CHECK(shared_tokens(a, a) == 6);  // the logits of the last one are wanted
  CHECK(tokens_of({{a, 0}, {b, 0}, {c, 0}, {d, 0}}, 1) == std::vector<std::size_t>{3, 0, 0, 2});
  // c has gone on; b still waits for a, which is to take one more token.
  CHECK(tokens_of({{a, 3}, {b, 3}, {c, 3}}, 1) == std::vector<std::size_t>{1, 0, 1});
  CHECK(tokens_of({{a, 4}, {b, 4}}, 1) == std::vector<std::size_t>{3, 2});
  // Where it saves too little, each goes by itself.
  CHECK(tokens_of({{a, 0}, {b, 0}, {c, 0}}, 8) == std::vector<std::size_t>{7, 6, 4});
  CHECK(tokens_of({{a, 0}, {b, 0}, {c, 0}}, 7) == std::vector<std::size_t>{3, 0, 0});
  // What could not be taken over goes through again.
  CHECK(tokens_of({{a, 5}, {b, 0}}, 1) == std::vector<std::size_t>{2, 6});
  CHECK(turns_of({}, 1).empty());
}

TEST_CASE("prompt sharing: copies wait for the first of them, whatever it waits for itself") {
  const Ids a = {1, 2, 3, 4, 5}, b = {1, 2, 3, 9};
  const auto turns = turns_of({{a, 0}, {b, 0}, {b, 0}, {a, 0}}, 1);
  CHECK(turns[0].tokens == 3);
  CHECK(turns[1].waits_for == 0);
  CHECK_FALSE(turns[1].twin);
  CHECK(turns[2].waits_for == 1);
  CHECK(turns[2].twin);
  CHECK(turns[3].waits_for == 0);
  CHECK(turns[3].twin);
  for (std::size_t i = 1; i < 4; ++i) CHECK(turns[i].tokens == 0);
  CHECK(tokens_of({{a, 0}, {b, 0}, {b, 0}, {a, 0}}, 100) == std::vector<std::size_t>{5, 4, 0, 0});
}

TEST_CASE("prompt sharing: every family gives the tokens and hashes of each prompt alone") {
  std::size_t with_text = 0;
  for (const std::string& path : family_paths()) {
    CAPTURE(path);
    EngineConfig config = tiny_config(path);
    if (!open_engine(config)->engine->require_tokenizer()) continue;
    ++with_text;
    for (const std::uint32_t batch : {6u, 512u}) {
      config.batch_tokens = batch;
      CHECK(check_kindred(config) >= 40 + 2 * 19);  // whatever its layers keep
    }
  }
  CHECK(with_text >= 1);
  EngineConfig config = tiny_config(embedded_model());
  config.cache = {SizeSpec::Kind::percent, 0, 10};  // fewer experts than the model has
  config.batch_tokens = 7;
  CHECK(check_kindred(config) >= 3 * 40);
}

TEST_CASE("prompt sharing: sessions of every family go on from what they took over") {
  const TempFolder folder;
  std::vector<std::string> paths = family_paths();
  paths.push_back(folder.write("v4.gguf", TinyDeepseek4().build().build()));
  for (const std::string& path : paths) {
    EngineConfig config = tiny_config(path);
    config.batch_tokens = 6;
    config.context = 64;
    config.sequences = 3;
    const auto made = open_engine(config);
    const Ids ids = some_ids(64, made->engine->spec().hparams.vocabulary);
    CAPTURE(path);
    for (const std::size_t count : {1u, 2u, 7u, 16u, 31u, 40u})
      check_take_over(*made->engine, ids, count, count);
    // Where the source has gone on, and still can go back.
    auto source = made->engine->new_session();
    last_logits(*made->engine, *source, std::span<const TokenId>(ids).first(37));
    for (const std::size_t count : {36u, 35u, 30u, 17u})
      if (source->keeps(count)) check_take_over(*made->engine, ids, 37, count);
    CHECK_FALSE(source->keeps(38));
    if (source->keeps(30)) {
      source->take_over(*source, 30);
      CHECK(source->tokens().size() == 30);
    }
  }
}
