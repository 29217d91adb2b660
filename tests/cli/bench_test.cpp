// `bench` as its users run it.
#include <csignal>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

TEST_CASE("bench: lists make rows, as table, JSON and picture") {
  const TempFolder folder;
  const std::string picture = folder.path("threads.svg");
  const Words flags = {"bench", "-t",       "1,2", "--cache",  "25%,all", "-n",
                       "3",     "--warmup", "2",   "--repeat", "1"};
  const Outcome json = run_program(flags + Words{"--json", "--svg", picture});
  CAPTURE(json.err);
  REQUIRE(json.code == 0);
  const Json result = only_json(json);
  const Json::Array& rows = *at(result, "rows").as_array();
  REQUIRE(rows.size() == 4);
  for (const Json& row : rows) {
    CHECK(integer_at(row, "runs") == 1);
    CHECK(number_at(row, "tokens_per_second.median") > 0);
    CHECK(number_at(row, "memory_tokens_per_second") > 0);
  }
  CHECK(text_at(rows[1], "cache") == "all");
  CHECK(text_at(rows[2], "threads") == "2");
  CHECK(text_at(result, "state_hash").size() == 16);
  CHECK(read_file(picture).starts_with("<svg"));
  const Outcome table = run_program({"bench", small_model(), "--policy", "lru,forecast", "-n", "2",
                                     "--warmup", "0", "--repeat", "2"});
  CAPTURE(table.err);
  CHECK(table.code == 0);
  for (const char* const word : {"lru", "forecast", "tokens/s", "2 rounds", "memory"})
    CHECK(contains(table.out, word));
}

TEST_CASE("bench: Ctrl-C prints what is there") {
  Process process(command({"bench", "-t", "1", "--repeat", "1000", "-n", "40"}),
                  {.terminal = true});
  REQUIRE(process.wait_for_error("3 of 1000"));
  process.send(SIGINT);
  const Outcome outcome = process.finish();
  CHECK(outcome.code == 130);
  CHECK(contains(outcome.out, "Little Tales"));
  CHECK(contains(outcome.out, "in all runs"));
  CHECK(contains(outcome.err, "s left"));
}

TEST_CASE("bench: what cannot be compared is refused by its flag") {
  struct Refused {
    Words flags;
    int code;
    const char* text;
  };
  const TempFolder folder;
  const std::vector<Refused> cases = {
      {{"--repeat", "0"}, 1, "--repeat 0"},
      {{"--repeat", "4294967295"}, 1, "--repeat 4294967295"},
      {{"-n", "0"}, 1, "-n 0"},
      {{"-n", "5000", "-c", "512"}, 1, "-n 5000: the context of 512"},
      {{"-n", "512", "-c", "512"}, 1, "room for 4"},
      {{"-t", "0"}, 1, "--threads 0"},
      {{"-t", "1,x"}, 1, "--threads x"},
      {{"-t", ""}, 1, "empty"},
      {{"--depth", "0"}, 1, "--depth 0"},
      {{"--depth", "9999"}, 1, "--depth 9999"},
      {{"--cache", "some"}, 1, "some"},
      {{"--cache", "4K"}, 4, "--cache"},
      {{"--policy", "lru,best"}, 1, "best"},
      {{"--prefetch", "oracle"}, 1, "oracle"},
      {{"--io", "uring,tape"}, 1, "tape"},
      {{"--direct", "maybe"}, 1, "maybe"},
      {{"-p", ""}, 1, "empty"},
      {{"--svg", folder.path("no/such/folder.svg")}, 2, "--svg"},
      {{folder.path("absent.gguf")}, 2, "absent.gguf"}};
  for (const Refused& refused : cases) {
    CAPTURE(refused.flags);
    const Outcome outcome = run_program(Words{"bench"} + refused.flags);
    CAPTURE(outcome.err);
    CHECK(outcome.code == refused.code);
    CHECK(outcome.out.empty());
    CHECK(contains(outcome.err, refused.text));
  }
}
