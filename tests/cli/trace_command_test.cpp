// `trace` and `replay` as their users run them.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

void check_refused(const Words& words, int code, const std::string& named) {
  CAPTURE(words);
  const Outcome outcome = run_program(words);
  CAPTURE(outcome.err);
  CHECK(outcome.code == code);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, named));
}

const char* const others_form =
    "seq,pos,token,layer,e0,e1,w0,w1\n0,0,7,0,5,2,0.7,0.3\n0,0,7,1,0,1,0.6,0.4\n";

}  // namespace

TEST_CASE("What trace records, replay replays: with every policy, beside the best possible") {
  const TempFolder folder;
  const std::string path = folder.path("trace.csv");
  const Outcome recorded =
      run_program({"trace", small_model(), "-q", "-p", "a b c", "-n", "20", "--json", "-o", path});
  CAPTURE(recorded.err);
  REQUIRE(recorded.code == 0);
  const Json summary = only_json(recorded);
  CHECK(integer_at(summary, "decode_tokens") == 19);
  CHECK(integer_at(summary, "choices") > 0);

  const Outcome replayed =
      run_program({"replay", path, "-m", small_model(), "--capacity", "50%,all", "--json",
                   "--drive-gbps", "2", "--compute-ms", "1"});
  CAPTURE(replayed.err);
  REQUIRE(replayed.code == 0);
  const Json study = only_json(replayed);
  const Json::Array& rows = *at(study, "rows").as_array();
  REQUIRE(rows.size() == 2 * 5);
  for (const Json& row : rows) {
    CHECK(integer_at(row, "requests") == integer_at(row, "hits") + integer_at(row, "misses"));
    CHECK(number_at(row, "tokens_per_second") > 0);
    if (text_at(row, "capacity") == "all")
      CHECK(integer_at(row, "misses") == integer_at(row, "compulsory"));
  }
  // Without flags it is priced by this machine; the picture has a curve for each policy.
  const std::string picture = folder.path("replay.svg");
  const Outcome here = run_program(
      {"replay", path, "-m", small_model(), "--capacity", "50%,all", "--json", "--svg", picture});
  CAPTURE(here.err);
  REQUIRE(here.code == 0);
  const Json priced = only_json(here);
  CHECK(contains(text_at(priced, "priced_by"), "GB/s"));
  for (const Json& row : *at(priced, "rows").as_array())
    CHECK(number_at(row, "tokens_per_second") > 0);
  CHECK(contains(read_file(picture), "belady"));
  const Outcome table =
      run_program({"replay", path, "-m", small_model(), "--policy", "lfu", "--capacity", "50%"});
  CHECK(table.code == 0);
  for (const char* const word : {"belady", "lru", "lfu", "recovered"})
    CHECK(contains(table.out, word));
}

TEST_CASE("trace import brings another recorder's columns into the form of run --trace") {
  const TempFolder folder;
  const std::string path = folder.path("made.csv");
  const Outcome imported =
      run_program({"trace", "import", folder.write("other.csv", others_form), "-o", path});
  CAPTURE(imported.err);
  REQUIRE(imported.code == 0);
  CHECK(read_file(path) ==
        "# model=unknown arch=unknown n_layer=2 n_expert=6 n_expert_used=2\n"
        "turn,phase,step,layer,experts,weights\n"
        "0,1,0,0,5 2,0.7 0.3\n0,1,0,1,0 1,0.6 0.4\n");
  CHECK(run_program({"trace", "show", path}).code == 0);
}

TEST_CASE(
    "Traces that are malformed, absent, of another model, or would be overwritten are refused") {
  const TempFolder folder;
  const std::string other = folder.write("other.csv", others_form);
  const std::string foreign =
      folder.write("foreign.csv", std::string(others_form) + "0,0,7,99,0,1,0.6,0.4\n");
  const std::string broken = folder.write("broken.csv", std::string(others_form) + "0,0,7,1,0\n");
  check_refused({"trace", "show", broken}, 1, "broken.csv:4: column 6");
  check_refused({"trace", "show", folder.path("absent")}, 2, "absent");
  check_refused({"trace", "show", foreign, "-m", small_model()}, 1, "another model");
  check_refused({"trace", "import", other, "-o", other}, 1, "same file");
  check_refused({"trace", small_model(), "-p", "a"}, 1, "-o");
  check_refused({"trace", small_model(), "-o", folder.path("t.csv")}, 1, "prompt is empty");
  check_refused({"replay", other}, 1, "--expert-bytes");
  check_refused({"replay", other, "--expert-bytes", "4096", "--capacity", "0%"}, 1, "--capacity");
  check_refused({"replay", other, "--expert-bytes", "4096", "--capacity", "x"}, 1, "--capacity");
  check_refused({"replay", other, "--expert-bytes", "4096", "--policy", "best"}, 1, "--policy");
  check_refused({"replay", other, "--expert-bytes", "4096", "--drive-gbps", "1", "--ahead", "2"}, 1,
                "--ahead 2");
  check_refused({"replay", other, "--expert-bytes", "4096", "--prefetch", "x"}, 1, "--prefetch x");
  check_refused({"replay", other, "--expert-bytes", "4096", "--svg", other}, 1, "same file");
  check_refused({"replay", foreign, "-m", small_model()}, 1, "another model");
}

TEST_CASE("replay says what it is priced by, and that computing counts as nothing") {
  const TempFolder folder;
  const std::string trace = folder.write("t.csv", others_form);
  const Words common = {"replay", trace, "--expert-bytes", "4096", "--capacity", "all"};
  const Outcome free = run_program(common + Words{"--drive-gbps", "2"});
  CHECK(free.code == 0);
  CHECK(contains(free.out, "priced by: 2 GB/s (--drive-gbps), computing counts as nothing"));
  const Outcome both = run_program(common + Words{"--drive-gbps", "2", "--compute-ms", "3"});
  CHECK(contains(both.out, "2 GB/s (--drive-gbps), 3 ms of computing (--compute-ms)"));
  CHECK_FALSE(contains(run_program(common).out, "priced by"));
  const Outcome broken = run_program({"trace", "show", folder.write("empty.csv", "")});
  CHECK(broken.code == 1);
  CHECK(contains(broken.err, "empty.csv is empty"));
}

TEST_CASE("replay: numbers that no machine has, or that do not fit the trace, are refused") {
  const TempFolder folder;
  const std::string trace = folder.write("t.csv", others_form);
  struct Refused {
    Words flags;
    const char* named;
  };
  const std::vector<Refused> cases = {
      {{"--experts", "100000000"}, "--experts 100000000"},
      {{"--experts", "1"}, "--experts 1: "},
      {{"--drive-gbps", "nan"}, "--drive-gbps nan"},
      {{"--drive-gbps", "inf"}, "--drive-gbps inf"},
      {{"--drive-gbps", "-1"}, "--drive-gbps -1"},
      {{"--drive-gbps", "0", "--compute-ms", "1"}, "--drive-gbps 0"},
      {{"--drive-gbps", "1e-300"}, "--drive-gbps 1e-300: must be 0.001 to 10000"},
      {{"--compute-ms", "1"}, "--drive-gbps"},
      {{"--ahead", "0.5"}, "--ahead: needs --drive-gbps or --model too"},
      {{"--expert-share", "0.5"}, "--expert-share: needs --drive-gbps or --model too"},
      {{"--drive-gbps", "1", "--compute-ms", "nan"}, "--compute-ms"},
      {{"--expert-bytes", "18446744073709551615"}, "--expert-bytes"}};
  for (const Refused& refused : cases)
    check_refused(Words{"replay", trace, "--expert-bytes", "4096"} + refused.flags, 1,
                  refused.named);
  const Outcome more = run_program(
      {"replay", trace, "--expert-bytes", "4096", "--experts", "1024", "--capacity", "50%"});
  CHECK(more.code == 0);
}

TEST_CASE("replay: memory that is not there is told without flags that replay has not") {
  const TempFolder folder;
  std::string text = "# expert_bytes=4096\nturn,phase,step,layer,experts,weights\n";
  for (int step = 0; step < 3'000'000; ++step) text += "0,1,0,0,0,1\n";
  const auto little = [] {
    const rlimit limit = {160 << 20, 160 << 20};
    return setrlimit(RLIMIT_AS, &limit) == 0;
  };
  const Outcome outcome =
      run_program({"replay", folder.write("t.csv", text)}, {.before_exec = little});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 4);
  CHECK(outcome.err == "millrace: error: out of memory\n");
}

TEST_CASE("replay, trace show and import: Ctrl-C ends them with 130") {
  const TempFolder folder;
  const std::string pipe = folder.path("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  for (const Words& words :
       {Words{"replay", pipe, "--expert-bytes", "4096"}, Words{"trace", "show", pipe}}) {
    CAPTURE(words);
    Process process(command(words));
    const int held = open(pipe.c_str(), O_WRONLY | O_CLOEXEC);  // once it reads
    REQUIRE(held >= 0);
    process.send(SIGINT);
    close(held);
    const Outcome outcome = process.finish();
    CHECK(outcome.signal == 0);
    CHECK(outcome.code == 130);
  }
}

TEST_CASE("trace show: no reuse without decoded tokens, and an incomplete last token is noted") {
  const TempFolder folder;
  const std::string head =
      "# n_layer=2 n_expert=8 n_expert_used=1\n"
      "turn,phase,step,layer,experts,weights\n";
  const std::string path = folder.write("t.csv", head + "0,0,0,0,1,1\n0,0,0,1,2,1\n");
  const Outcome prompt = run_program({"trace", "show", path});
  CHECK(prompt.code == 0);
  CHECK_FALSE(contains(prompt.out, "reuse"));
  CHECK(prompt.err.empty());
  const std::string cut = folder.write("c.csv", head + "0,1,0,0,1,1\n0,1,0,1,2,1\n0,1,1,0,3,1\n");
  const Outcome noted = run_program({"trace", "show", cut});
  CHECK(noted.code == 0);
  CHECK(contains(noted.out, "reuse"));
  CHECK(contains(noted.err, "c.csv: the last token is incomplete: layers 0 to 0 of 2"));
  const Outcome one = run_program({"replay", path, "--capacity", "1%"});
  CAPTURE(one.err);
  CHECK_FALSE(contains(one.err, "1 experts"));
}
