// What the program says before a run: of the machine, and of a model.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

TEST_CASE("doctor: every examination is in the table and in the JSON, with advice where it lacks") {
  const TempFolder folder;
  const Outcome table = run_program({"doctor", folder.path("")});
  CHECK(table.code == 0);
  const Outcome json = run_program({"doctor", folder.path(""), "--json"});
  CHECK(json.code == 0);
  const Json all = only_json(json);
  for (const char* name : {"io_uring", "direct reads", "locked memory", "huge pages", "cpu",
                           "memory", "drive", "pressure"}) {
    CAPTURE(name);
    CHECK(contains(table.out, name));
    const Json* one = all.find(name);
    REQUIRE(one != nullptr);
    const std::string health = text_at(*one, "health");
    CHECK((health == "good" || health == "note" || health == "lacking"));
    CHECK_FALSE(text_at(*one, "found").empty());
    if (health == "lacking") CHECK_FALSE(at(*one, "advice").is_null());
  }
  CHECK(integer_at(*all.find("cpu"), "details.cores") >= 1);
  CHECK(contains(text_at(*all.find("drive"), "found"), "never measured"));
}

TEST_CASE("doctor: a path that is not there is a finding, not an error") {
  const TempFolder folder;
  const Outcome outcome = run_program({"doctor", folder.path("absent")});
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.out, "absent: no such file"));
}

TEST_CASE("estimate: a model and a shape, as table and as JSON") {
  const Outcome table = run_program({"estimate", small_model(), "--ram", "1G"});
  CHECK(table.code == 0);
  CHECK(contains(table.out, "1.00 GiB"));
  const Json shape = only_json(run_program(
      {"estimate", "olmoe-1b-7b", "--type", "q8_0", "--ram", "4G", "--ram", "16G", "--json"}));
  CHECK(integer_at(shape, "model.experts") == 64);
  CHECK(at(shape, "budgets").as_array()->size() == 2);
  const Json& budget = at(shape, "budgets").as_array()->front();
  CHECK(number_at(budget, "tokens_per_second_low") <= number_at(budget, "tokens_per_second_high"));
  CHECK(integer_at(shape, "disk.needed_bytes") > integer_at(shape, "model.pool_bytes"));
}

TEST_CASE("estimate: what cannot be estimated is refused by name") {
  const TempFolder folder;
  struct Refused {
    Words flags;
    int code;
    const char* text;
  };
  const std::string junk = folder.write("junk.gguf", "junk");
  const std::vector<Refused> cases = {
      {{"no-such-shape"}, 2, "no such file, and no shape of that name"},
      {{junk}, 3, "junk.gguf"},
      {{small_model(), "--ram", "much"}, 1, "--ram much"},
      {{small_model(), "--ram", "50%"}, 1, "--ram 50%"},
      {{"olmoe-1b-7b", "--type", "q99"}, 1, "q99"},
      {{small_model(), "-c", "4294967295"}, 1, "-c 4294967295"},
      {{}, 1, "--model"}};
  for (const Refused& refused : cases) {
    CAPTURE(refused.flags);
    const Outcome outcome = run_program(Words{"estimate"} + refused.flags);
    CAPTURE(outcome.err);
    CHECK(outcome.code == refused.code);
    CHECK(contains(outcome.err, refused.text));
  }
}

TEST_CASE("estimate: Ctrl-C ends it with 130") {
  const TempFolder folder;
  const std::string trace = folder.path("trace");  // holds it where it has not measured yet
  REQUIRE(mkfifo(trace.c_str(), 0600) == 0);
  Process process(command({"estimate", small_model(), "--routing", trace}));
  const int held = open(trace.c_str(), O_WRONLY | O_CLOEXEC);  // once it reads
  REQUIRE(held >= 0);
  process.send(SIGINT);
  close(held);
  const Outcome outcome = process.finish();
  CHECK(outcome.signal == 0);
  CHECK(outcome.code == 130);
}
