// The embedded model over held-out prose, beside what llama.cpp makes of it
// (model/embedded/MODEL.md).
#include <filesystem>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;

TEST_CASE("perplexity of the held-out prose is llama.cpp's within half a percent", "[slow]") {
  const std::string path = MILLRACE_ORACLES "/../model/heldout.txt";
  if (std::string(MILLRACE_ORACLES).empty() || !std::filesystem::exists(path)) {
    WARN("skipped: the text is not here (option oracles)");
    return;
  }
  const Outcome outcome = run_program(
      {"perplexity", embedded_model(), path, "--chunks", "40", "-c", "512", "--json", "-q"});
  REQUIRE(outcome.code == 0);
  const Json object = only_json(outcome);
  CHECK(integer_at(object, "tokens") == 56919);
  CHECK(integer_at(object, "windows") == 40);
  CHECK(number_at(object, "perplexity") == Approx(35.1411).epsilon(0.005));
}
