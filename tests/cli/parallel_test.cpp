// Several sequences in one run: copies of a prompt, and prompts from a file.
#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

const Words small_run = {"-n", "6", "--cache", "25%"};

void check_as_alone(const Json& sequence, const Words& flags, std::int64_t seed) {
  const Json alone = run_json(small_run + flags + Words{"--seed", std::to_string(seed)});
  CHECK(integer_at(sequence, "seed") == seed);
  for (const char* key : {"text", "state_hash", "finish_reason"})
    CHECK(text_at(sequence, key) == text_at(alone, key));
  CHECK(integer_at(sequence, "prompt.tokens") == integer_at(alone, "prompt.tokens"));
  CHECK(integer_at(sequence, "decode.tokens") == integer_at(alone, "decode.tokens"));
}

}  // namespace

TEST_CASE("run --parallel: copies of the prompt with seeds in a row, each as it is alone") {
  const Json all =
      run_json(small_run + Words{"-p", "Once upon", "--seed", "11", "--parallel", "3"});
  const Json::Array& sequences = *at(all, "sequences").as_array();
  REQUIRE(sequences.size() == 3);
  for (std::size_t i = 0; i < 3; ++i)
    check_as_alone(sequences[i], {"-p", "Once upon"}, 11 + static_cast<std::int64_t>(i));
  CHECK(integer_at(all, "parallel") == 3);
  const std::int64_t prompt = integer_at(sequences[0], "prompt.tokens");
  CHECK(integer_at(sequences[0], "prompt.tokens_taken_over") == 0);
  CHECK(integer_at(sequences[2], "prompt.tokens_taken_over") == prompt);
  CHECK(integer_at(all, "prompt.tokens_taken_over") == 2 * prompt);
  CHECK(integer_at(all, "prompt.tokens") == prompt);
  CHECK(integer_at(all, "decode.steps") == 5);
  CHECK(integer_at(all, "decode.tokens") == 15);
  CHECK(number_at(all, "decode.bytes_per_step") > 0);
  CHECK(text_at(all, "finish_reason") == "length");
  for (const char* key : {"text", "seed", "state_hash"}) CHECK(at(all, key).is_null());
}

TEST_CASE("run --prompts: a line or an element of a JSON array is a prompt") {
  const TempFolder folder;
  const std::vector<std::string> prompts = {"Once upon a time", "The wolf", "\"Yes\", she said"};
  const std::string lines =
      folder.write("lines", prompts[0] + "\n\n" + prompts[1] + "\r\n" + prompts[2]);
  Json array = Json::array();
  for (const std::string& prompt : prompts) array.push(prompt);
  const std::string json = folder.write("array", "\n " + array.dump());
  for (const std::string& path : {lines, json}) {
    CAPTURE(path);
    const Json all = run_json(small_run + Words{"--prompts", path, "--seed", "0", "-np", "2"});
    const Json::Array& sequences = *at(all, "sequences").as_array();
    REQUIRE(sequences.size() == prompts.size());
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      CHECK(text_at(sequences[i], "prompt_text") == prompts[i]);
      check_as_alone(sequences[i], {"-p", prompts[i]}, static_cast<std::int64_t>(i));
    }
    CHECK(integer_at(all, "parallel") == 2);
  }
  const Outcome text = run_program(Words{"run", "--prompts", lines, "--seed", "0"} + small_run);
  CHECK(text.code == 0);
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::string number = std::to_string(i + 1) + " of 3, seed " + std::to_string(i);
    CHECK(contains(text.out, "--- " + number + "\n" + prompts[i]));
  }
  CHECK(contains(text.err, "3 sequences, 3 at a time"));
}

TEST_CASE("run --prompts: a byte order mark before the first prompt is none of it") {
  const TempFolder folder;
  const auto prompts_of = [&](const char* name, const std::string& text) {
    const Outcome outcome = run_program(Words{"run", small_model(), "--prompts",
                                              folder.write(name, text), "-n", "1", "--json", "-q"});
    CAPTURE(outcome.err);
    REQUIRE(outcome.code == 0);
    const Json all = only_json(outcome);
    Words prompts;
    for (const Json& sequence : *at(all, "sequences").as_array())
      prompts.push_back(text_at(sequence, "prompt_text"));
    return prompts;
  };
  CHECK(prompts_of("array", "\xEF\xBB\xBF[\"one\", \"two\"]") == Words{"one", "two"});
  CHECK(prompts_of("lines", "\xEF\xBB\xBFone\ntwo\n") == Words{"one", "two"});
}

TEST_CASE("run --parallel --chat: answers without the template's marks") {
  const Outcome outcome = run_program(
      Words{"run", small_model(), "--chat", "-p", "hello", "-n", "3", "-np", "2", "--json", "-q"});
  REQUIRE(outcome.code == 0);
  const Json all = only_json(outcome);
  for (const Json& sequence : *at(all, "sequences").as_array())
    CHECK(sequence.find("tool_calls") != nullptr);
}

TEST_CASE("run --parallel and --prompts: what cannot be is refused with the flag") {
  const TempFolder folder;
  struct Refused {
    Words flags;
    int code;
    const char* text;
  };
  const std::string empty = folder.write("empty", " \n\n");
  const std::string broken = folder.write("broken", "[\"a\", ");
  const std::string numbers = folder.write("numbers", "[\"a\", 1]");
  const std::string lines = folder.write("lines", "one\ntwo\n");
  const std::string lines_2 = "--prompts " + lines + ": prompt 2";
  const std::vector<Refused> cases = {
      {{"-p", "x", "--parallel", "0"}, 1, "--parallel"},
      {{"-p", "x", "--parallel", "257"}, 1, "--parallel"},
      {{"-p", "x", "--parallel", "two"}, 1, "--parallel"},
      {{"--parallel", "2"}, 1, "the prompt is empty"},
      {{"-p", "x", "--prompts", lines}, 1, "not both"},
      {{"--prompts", folder.path("absent")}, 2, "absent"},
      {{"--prompts", empty}, 1, "there is no prompt"},
      {{"--prompts", broken}, 1, "no JSON array"},
      {{"--prompts", numbers}, 1, "element 2"},
      {{"--prompts", lines, "--seed", "4294967294"}, 1, "--seed 4294967294"},
      {{"--prompts", lines, "--trace", folder.path("t.csv")}, 1, "--trace"},
      {{"-p", "x", "-np", "2", "--dump-state", folder.path("s")}, 1, "--dump-state"},
      {{"--prompts", lines, "-c", "1"}, 1, lines_2.c_str()},
      {{"-p", "x", "-np", "200", "-c", "16000000"}, 4, "200 x 16000000"}};
  for (const Refused& refused : cases) {
    CAPTURE(refused.flags);
    const Outcome outcome = run_program(Words{"run", "-q"} + refused.flags);
    CAPTURE(outcome.err);
    CHECK(outcome.code == refused.code);
    CHECK(contains(outcome.err, refused.text));
    CHECK(outcome.out.empty());
  }
}
