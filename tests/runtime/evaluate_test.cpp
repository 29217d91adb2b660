// Perplexity against a direct computation from logits, and the model that comes with the program.
#include "runtime/evaluate.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/embedded_model.h"
#include "tests/support/tiny_engine.h"

using namespace millrace;
using namespace millrace::test;
using namespace millrace::testing;

namespace {

std::unique_ptr<TestEngine> embedded_engine() {
  EngineConfig config = tiny_config(embedded_model());
  config.context = 64;
  return open_engine(config);
}

std::vector<TokenId> text_ids(const Engine& engine, std::size_t count) {
  std::string text;
  for (int i = 0; i < 20; ++i)
    text += "The miller went down to the race, and the wheel stood still. ";
  auto encoded = engine.tokenizer().encode(text, {});
  REQUIRE(encoded.has_value());
  std::vector<TokenId> ids = *std::move(encoded);
  REQUIRE(ids.size() >= count);
  ids.resize(count);
  return ids;
}

double loss(const float* row, std::size_t count, TokenId target) {
  const double most = *std::max_element(row, row + count);
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += std::exp(double{row[i]} - most);
  return std::log(sum) + most - double{row[target]};
}

}  // namespace

TEST_CASE("perplexity: it is the one of the second halves of windows, each from an empty context") {
  const auto made = embedded_engine();
  Engine& engine = *made->engine;
  constexpr std::uint32_t window = 16;
  const std::vector<TokenId> ids = text_ids(engine, 3 * window + 5);
  const std::size_t vocabulary = engine.spec().hparams.vocabulary;
  const auto& special = engine.tokenizer().special();
  std::vector<double> losses;
  for (std::size_t first = 0; first + window <= ids.size(); first += window) {
    std::vector<TokenId> tokens(ids.begin() + static_cast<std::ptrdiff_t>(first),
                                ids.begin() + static_cast<std::ptrdiff_t>(first + window));
    if (special.add_bos && special.bos) tokens.front() = *special.bos;
    const std::vector<float> rows = logits_of(engine, tokens);
    for (std::size_t at = window / 2; at + 1 < window; ++at)
      losses.push_back(loss(&rows[at * vocabulary], vocabulary, ids[first + at + 1]));
  }
  double mean = 0;
  for (const double value : losses) mean += value / static_cast<double>(losses.size());
  double variance = 0;
  for (const double value : losses)
    variance += (value - mean) * (value - mean) / static_cast<double>(losses.size());

  std::vector<std::uint32_t> told;
  const auto measured = measure_perplexity(
      engine, ids, {window, 0}, [&](std::uint32_t done, std::uint32_t all, double value) {
        CHECK(all == 3);
        CHECK(std::isfinite(value));
        told.push_back(done);
      });
  REQUIRE(measured.has_value());
  CHECK(measured->windows == 3);
  CHECK(measured->scored == losses.size());
  CHECK(measured->tokens == ids.size());
  CHECK(measured->value == Approx(std::exp(mean)).epsilon(1e-9));
  const double error =
      std::exp(mean) * std::sqrt(variance / (static_cast<double>(losses.size()) - 1));
  CHECK(measured->uncertainty == Approx(error).epsilon(1e-6));
  CHECK(told == std::vector<std::uint32_t>{1, 2, 3});

  const auto one =
      measure_perplexity(engine, ids, {window, 1}, [](std::uint32_t, std::uint32_t, double) {});
  REQUIRE(one.has_value());
  CHECK(one->windows == 1);
  CHECK(one->scored == losses.size() / 3);
}

TEST_CASE(
    "perplexity: windows that are too small, too large, or longer than the text are refused") {
  const auto made = embedded_engine();
  const std::vector<TokenId> ids = text_ids(*made->engine, 50);
  const auto refuse = [&](std::uint32_t window, const std::string& part) {
    const auto measured = measure_perplexity(*made->engine, ids, {window, 0},
                                             [](std::uint32_t, std::uint32_t, double) {});
    REQUIRE_FALSE(measured.has_value());
    CHECK(measured.error().code == ErrorCode::usage);
    CHECK_THAT(measured.error().what, Catch::Contains(part));
  };
  refuse(3, "-c 3: a window needs at least 4 tokens");
  refuse(65, "the context holds 64");
  refuse(51, "50 tokens, one window needs 51");
}

TEST_CASE("logits: whole prompts and single tokens give the same bits and the same greedy ids") {
  const auto made = embedded_engine();
  const std::vector<TokenId> ids = text_ids(*made->engine, 12);
  std::vector<TokenId> greedy[2];
  std::vector<float> rows[2];
  for (const bool one_by_one : {false, true})
    REQUIRE(run_logits(
                *made->engine, {ids, one_by_one, 10},
                [&](std::size_t, const float* row) {
                  rows[one_by_one].insert(rows[one_by_one].end(), row,
                                          row + made->engine->spec().hparams.vocabulary);
                  return true;
                },
                greedy[one_by_one])
                .has_value());
  CHECK(rows[0] == rows[1]);
  CHECK(greedy[0] == greedy[1]);
  CHECK(greedy[0].size() == 10);
}

TEST_CASE("logits: a taker that cannot store them ends the run, no ids are refused") {
  const auto made = embedded_engine();
  std::vector<TokenId> greedy;
  const Status full = run_logits(
      *made->engine, {text_ids(*made->engine, 4), true, 1},
      [](std::size_t position, const float*) { return position < 2; }, greedy);
  REQUIRE_FALSE(full.has_value());
  CHECK(full.error().code == ErrorCode::io);
  CHECK(greedy.empty());
  const Status none = run_logits(
      *made->engine, {}, [](std::size_t, const float*) { return true; }, greedy);
  REQUIRE_FALSE(none.has_value());
  CHECK(none.error().code == ErrorCode::usage);
}

TEST_CASE("ids: an array or an object with ids is read, anything else refused with the file") {
  const TempFolder folder;
  const auto ids = read_ids_file(folder.write("a.json", "[1, 2, 30]"));
  REQUIRE(ids.has_value());
  CHECK(*ids == std::vector<TokenId>{1, 2, 30});
  CHECK(read_ids_file(folder.write("b.json", R"({"x": 1, "ids": [7]})"))->front() == 7);
  for (const char* text :
       {"", "{", "3", "{}", R"({"ids": 3})", "[1, -2]", "[1.5]", R"(["1"])", "[2147483648]"}) {
    const auto refused = read_ids_file(folder.write("c.json", text));
    INFO(text);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == ErrorCode::usage);
    CHECK_THAT(refused.error().what, Catch::Contains("c.json"));
  }
  const auto missing = read_ids_file(folder.path("none.json"));
  REQUIRE_FALSE(missing.has_value());
  CHECK(missing.error().code == ErrorCode::io);
}

TEST_CASE("the embedded model is found from a program in the build folder") {
  const auto path = embedded_model_path();
  if (!path) FAIL(path.error().what);
  CHECK(std::filesystem::file_size(*path) == std::filesystem::file_size(embedded_model()));
}
