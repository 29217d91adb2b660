// The bytes that the report claims are those that the kernel counts.
#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;

TEST_CASE("With a quarter of the experts cached, the kernel counts the bytes that are reported") {
  const std::string reader = GENERATE("uring", "threads");
  const Words flags = {"run", "--json", "-q",     "-p", "Once upon a time",
                       "-n",  "60",     "--seed", "5",  "--cache",
                       "25%", "--io",   reader};
  if (!bool_at(only_json(run_program(flags)), "io.direct")) {  // and now the program is in memory
    WARN("skipped: the file system of the build folder gives no direct reads");
    return;
  }
  const Outcome outcome = run_program(flags);
  const Json report = only_json(outcome);
  const double reported = number_at(report, "io.bytes_read");
  CAPTURE(reported, outcome.device_bytes, at(report, "io.kernel_read_bytes").dump());
  CHECK(reported > 50e6);
  CHECK(static_cast<double>(outcome.device_bytes) == Approx(reported).epsilon(0.02));
  CHECK(number_at(report, "io.kernel_read_bytes") == Approx(reported).epsilon(0.02));
  // In decode: all of it is demanded experts.
  CHECK(number_at(report, "io.bytes_per_token") * number_at(report, "decode.tokens") < reported);
}
