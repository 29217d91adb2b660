// `fixture` as a user calls it: a model that runs, refusals before anything is written.
#include <sys/resource.h>

#include <filesystem>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

const Words tiny = {
    "fixture",   "--shape", "qwen3-30b-a3b", "--type", "mxfp4",          "--layers", "2",
    "--experts", "16",      "--width",       "256",    "--expert-width", "64",       "--vocabulary",
    "2048"};

void check_refused(const Words& words, int code, const std::string& named) {
  CAPTURE(words);
  const Outcome outcome = run_program(words);
  CAPTURE(outcome.err);
  CHECK(outcome.code == code);
  CHECK(contains(outcome.err, named));
}

}  // namespace

TEST_CASE("fixture: says what it writes, and the program runs it") {
  const TempFolder folder;
  const std::string path = folder.path("model.gguf");
  const Outcome made = run_program(tiny + Words{path});
  CAPTURE(made.err);
  REQUIRE(made.code == 0);
  CHECK(contains(made.err, "GB"));
  CHECK(contains(made.err, "8 of 16 experts"));
  CHECK_FALSE(std::filesystem::exists(path + ".part"));
  const Json result = run_json({path, "-p", "the rose", "-n", "8", "--temp", "0"});
  CHECK(integer_at(result, "model.experts") == 16);
  CHECK(integer_at(result, "decode.tokens") == 7);
  CHECK(run_program(tiny + Words{"-q", folder.path("quiet.gguf")}).err.empty());
  check_refused(tiny + Words{path}, 1, "overwrite");
}

TEST_CASE("fixture: unknown names are usage errors that list the known ones") {
  check_refused({"fixture", "--shape", "qwen9", "--type", "q8_0", "x"}, 1, "gpt-oss-120b");
  check_refused({"fixture", "--shape", "olmoe-1b-7b", "--type", "q9", "x"}, 1, "q4_k_m");
  check_refused({"fixture", "--type", "q8_0", "x"}, 1, "--shape");
  for (const char* const flag : {"--layers", "--width", "--experts", "--experts-used",
                                 "--expert-width", "--vocabulary", "--context"})
    check_refused({"fixture", "--shape", "olmoe-1b-7b", "--type", "q8_0", "/dev/null", flag, "0"},
                  1, flag);
  check_refused({"fixture", "--shape", "olmoe-1b-7b", "--type", "q8_0"}, 1, "OUT");
}

TEST_CASE("fixture: what the file system has no room for is refused before it is begun") {
  const TempFolder folder;
  const std::string path = folder.path("model.gguf");
  check_refused({"fixture", "--shape", "deepseek-v3", "--type", "f32", "--layers", "512",
                 "--experts", "1024", path},
                2, "free");
  CHECK(std::filesystem::is_empty(folder.path("")));
  check_refused(
      {"fixture", "--shape", "olmoe-1b-7b", "--type", "q8_0", folder.path("absent/model.gguf")}, 2,
      "absent");
}

TEST_CASE("fixture: a write that fails leaves nothing behind") {
  const TempFolder folder;
  Setup limited;
  limited.before_exec = [] {
    const rlimit limit{1 << 20, 1 << 20};
    return setrlimit(RLIMIT_FSIZE, &limit) == 0;
  };
  const Outcome outcome = run_program(tiny + Words{folder.path("model.gguf")}, limited);
  CAPTURE(outcome.err);
  CHECK(outcome.code == 2);
  CHECK(contains(outcome.err, "model.gguf"));
  CHECK(std::filesystem::is_empty(folder.path("")));
}
