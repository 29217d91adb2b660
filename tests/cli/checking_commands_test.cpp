// tokenize, logits and perplexity as scripts use them.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

// What an independent engine makes of "Once upon a time" with the embedded model.
Json once() {
  return *Json::parse(
      read_file(MILLRACE_SOURCE_ROOT "/tests/oracles/models/little-tales/once.json"));
}

std::vector<std::int64_t> ids_of(const Words& flags) {
  Words words = {"tokenize", "--json"};
  words.insert(words.end(), flags.begin(), flags.end());
  const Outcome outcome = run_program(words);
  REQUIRE(outcome.code == 0);
  const Json object = only_json(outcome);
  const auto ids = integers(at(object, "ids"));
  CHECK(integer_at(object, "count") == static_cast<std::int64_t>(ids.size()));
  return ids;
}

void check_usage(const Words& words, int code, const std::string& named) {
  CAPTURE(words);
  const Outcome outcome = run_program(words);
  CAPTURE(outcome.err);
  CHECK(outcome.code == code);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, named));
}

}  // namespace

TEST_CASE("tokenize: text and file give the ids of an independent engine, and decode comes back") {
  const TempFolder folder;
  const Json oracle = once();
  const std::string prompt = text_at(oracle, "prompt");
  const auto ids = integers(at(oracle, "prompt_ids"));
  CHECK(ids_of({"--text", prompt}) == ids);
  CHECK(ids_of({"--file", folder.write("text", prompt)}) == ids);
  const std::string object = folder.write("object", at(oracle, "prompt_ids").dump());
  CHECK(run_program({"tokenize", "--decode", object}).out == prompt);
  const std::string array =
      folder.write("array", Json::object().set("ids", at(oracle, "prompt_ids")).dump());
  CHECK(text_at(only_json(run_program({"tokenize", "--decode", array, "--json"})), "text") ==
        prompt);
}

TEST_CASE("tokenize: names of control tokens are text unless asked for") {
  const std::string text = "a<|endoftext|>b";
  CHECK(ids_of({"--text", text}).size() > 3);
  CHECK(ids_of({"--text", text, "--parse-special"}) == std::vector<std::int64_t>{97, 4093, 98});
  const Outcome shown = run_program({"tokenize", "--text", text, "--parse-special"});
  CHECK(contains(shown.out, "4093  '<|endoftext|>'"));
  CHECK(ids_of({"--text", ""}).empty());
}

TEST_CASE("tokenize: what is not given, given twice or not readable is refused") {
  const TempFolder folder;
  check_usage({"tokenize"}, 1, "--text");
  check_usage({"tokenize", "--text", "a", "--file", "b"}, 1, "--text");
  check_usage({"tokenize", "--file", folder.path("absent")}, 2, "absent");
  check_usage({"tokenize", "--decode", folder.path("absent")}, 2, "absent");
  check_usage({"tokenize", folder.path("absent.gguf"), "--text", "a"}, 2, "absent.gguf");
  check_usage({"tokenize", "--decode", folder.write("ids", "[1, 99999]")}, 1, "99999");
}

TEST_CASE("Ids that cannot be read are refused with 1, and the file is named") {
  const TempFolder folder;
  const std::string text =
      GENERATE("", "[1, 2", "{\"idz\": [1]}", "{\"ids\": 1}", "[1.5]", "[-1]", "[\"a\"]",
               "[99999999999]", "7", "[[1]]", "{\"ids\": [1], \"ids\": [2]}");
  CAPTURE(text);
  const std::string path = folder.write("ids.json", text);
  check_usage({"logits", "--tokens", path, "-o", folder.path("out")}, 1, "ids.json");
}

TEST_CASE("logits: no ids, ids outside the vocabulary and half a request are refused with 1") {
  const TempFolder folder;
  const std::string out = folder.path("out");
  const std::string ids = folder.write("ids", "[1]");
  check_usage({"logits", "--tokens", folder.write("none", "[]"), "-o", out}, 1, "no token ids");
  check_usage({"logits", "--tokens", folder.write("big", "[4096]"), "-o", out}, 1,
              "big: token id 4096");
  check_usage({"logits", "--tokens", ids}, 1, "--out");
  check_usage({"logits", "-o", out}, 1, "--tokens");
  check_usage({"logits", "--tokens", ids, "-o", out, "--greedy", "3"}, 1, "--greedy-out");
  check_usage({"logits", "--tokens", folder.path("absent"), "-o", out}, 2, "absent");
  std::string many = "[1";
  for (int i = 0; i < 20; ++i) many += ",1";
  check_usage({"logits", "--tokens", folder.write("many", many + "]"), "-o", out, "-c", "16"}, 1,
              "-c");
}

TEST_CASE("logits: one row per position, the same bytes token by token, with any cache") {
  const TempFolder folder;
  const std::string ids = folder.write("ids", "{\"ids\": [79, 1415, 529, 258, 580]}");
  const std::string whole = folder.path("whole");
  REQUIRE(run_program({"logits", "--tokens", ids, "-o", whole}).code == 0);
  const std::string bytes = read_file(whole);
  CHECK(bytes.size() == 5 * 4096 * sizeof(float));
  const Words flags = GENERATE(Words{"--one-by-one"}, Words{"--cache", "3%", "-ub", "2"},
                               Words{"--one-by-one", "--trunk", "80%", "--io", "threads"});
  CAPTURE(flags);
  Words words = {"logits", "--tokens", ids, "-o", folder.path("other")};
  words.insert(words.end(), flags.begin(), flags.end());
  REQUIRE(run_program(words).code == 0);
  CHECK(read_file(folder.path("other")) == bytes);
}

TEST_CASE("logits: the greedy continuation is that of an independent engine") {
  const TempFolder folder;
  const Json oracle = once();
  const std::string ids = folder.write("ids", at(oracle, "prompt_ids").dump());
  const std::string out = folder.path("greedy.json");
  REQUIRE(run_program({"logits", "--tokens", ids, "-o", "/dev/null", "--greedy", "24",
                       "--greedy-out", out, "--activations", "f32", "--kv", "f32"})
              .code == 0);
  const auto parsed = Json::parse(read_file(out));
  REQUIRE(parsed.has_value());
  REQUIRE(parsed->as_object()->size() == 1);
  auto expected = integers(at(oracle, "ids_deq"));
  expected.resize(24);
  CHECK(integers(at(*parsed, "ids")) == expected);
}

TEST_CASE("logits and perplexity record the routing as run does") {
  const TempFolder folder;
  const std::string ids = folder.write("ids", "[5,6,7]");
  const auto rows = [&](const Words& words) {
    const std::string trace = folder.path("trace");
    const Outcome outcome = run_program(words + Words{"--trace", trace});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 0);
    const std::string text = read_file(trace);
    return std::count(text.begin(), text.end(), '\n') - 2;  // the model's line and the header
  };
  const std::int64_t layers =
      integer_at(run_json({small_model(), "-p", "x", "-n", "1"}), "model.layers");
  CHECK(rows({"logits", small_model(), "--tokens", ids, "-o", folder.path("out")}) == 3 * layers);
  const std::string page = folder.write("page", std::string(200, 'x'));
  const Json told = only_json(
      run_program({"perplexity", small_model(), page, "-c", "8", "--chunks", "2", "--json"}));
  CHECK(integer_at(told, "windows") == 2);
  CHECK(rows({"perplexity", small_model(), page, "-c", "8", "--chunks", "2"}) == 2 * 8 * layers);
}

TEST_CASE("perplexity: windows, scored tokens and value are told, as text and as JSON") {
  const TempFolder folder;
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The king went to the wood and saw a little house. ";
  const std::string path = folder.write("text", text);
  const Words words = {"perplexity", embedded_model(), path, "-c", "64"};
  Words json = words;
  json.insert(json.end(), {"--chunks", "3", "--json", "-q"});
  const Outcome outcome = run_program(json);
  REQUIRE(outcome.code == 0);
  const Json object = only_json(outcome);
  CHECK(integer_at(object, "windows") == 3);
  CHECK(integer_at(object, "window_tokens") == 64);
  CHECK(integer_at(object, "scored") == 3 * 31);
  CHECK(integer_at(object, "tokens") ==
        static_cast<std::int64_t>(ids_of({"--file", path, "--parse-special"}).size()));
  CHECK(number_at(object, "perplexity") > 1);
  CHECK(number_at(object, "perplexity") < 100);
  CHECK(number_at(object, "uncertainty") > 0);
  CHECK(contains(run_program(words).out, "perplexity "));
}

TEST_CASE("perplexity: a text shorter than a window and windows too short are refused with 1") {
  const TempFolder folder;
  const std::string path = folder.write("text", "Once upon a time");
  check_usage({"perplexity", embedded_model(), path}, 1, "512");
  check_usage({"perplexity", embedded_model(), path, "-c", "2"}, 1,
              "-c 2: a window needs at least 4 tokens");
  check_usage({"perplexity", embedded_model()}, 1, "FILE");
  check_usage({"perplexity", embedded_model(), folder.path("absent")}, 2, "absent");
  check_usage({"perplexity", embedded_model(), folder.write("empty", "")}, 1, "empty has 0 tokens");
}
