// The line that tells how far long work is: for people at a terminal only.
#include <csignal>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;

namespace {

constexpr const char* wiped = "\r\x1b[K";

Words long_prompt(const testing::TempFolder& folder, const Words& flags) {
  std::string text;
  for (int i = 0; i < 30; ++i) text += "The king went to the wood and saw a little house. ";
  Words words = {"run", "-n", "2", "-f", folder.write("prompt", text)};
  words.insert(words.end(), flags.begin(), flags.end());
  return words;
}

}  // namespace

TEST_CASE("On a terminal a long prompt shows how far it is, and wipes that before the report") {
  const testing::TempFolder folder;
  const Outcome outcome = run_program(long_prompt(folder, {}), {.terminal = true});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(contains(outcome.err, "reading the trunk ["));
  CHECK(contains(outcome.err, "prompt ["));
  CHECK(outcome.err.rfind(wiped) < outcome.err.find("tokens/s"));
  CHECK_FALSE(contains(outcome.out, "prompt ["));
}

TEST_CASE("In a pipe, and when quiet, nothing of the progress is written") {
  const testing::TempFolder folder;
  const Outcome piped = run_program(long_prompt(folder, {}));
  CHECK(piped.code == 0);
  CHECK_FALSE(contains(piped.err, "\r"));
  CHECK_FALSE(contains(piped.err, "prompt ["));
  CHECK(run_program(long_prompt(folder, {"-q"}), {.terminal = true}).err.empty());
}

TEST_CASE("Ctrl-C while the prompt is processed ends with 130 after the report") {
  const testing::TempFolder folder;
  Process process(command(long_prompt(folder, {"-ub", "1", "-n", "100"})), {.terminal = true});
  REQUIRE(process.wait_for_error("prompt ["));
  process.send(SIGINT);
  const Outcome outcome = process.finish();
  CAPTURE(outcome.err);
  CHECK(outcome.code == 130);
  CHECK(contains(outcome.err, "cancelled"));
}
