// Prompts that cannot be continued.
#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

void check_refused(const Words& words, int code, const std::string& named) {
  CAPTURE(words);
  Words all = {"run", small_model()};
  all.insert(all.end(), words.begin(), words.end());
  const Outcome outcome = run_program(all);
  CAPTURE(outcome.err);
  CHECK(outcome.code == code);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, named));
}

}  // namespace

TEST_CASE("An empty prompt is refused with 1, wherever it comes from") {
  const TempFolder folder;
  check_refused({}, 1, "prompt is empty");
  check_refused({"-p", ""}, 1, "prompt is empty");
  check_refused({"-f", folder.write("empty", "")}, 1, "prompt is empty");
  check_refused({"-f", "-"}, 1, "prompt is empty");
}

TEST_CASE("Two prompts are refused with 1, a file that cannot be read with 2") {
  const TempFolder folder;
  check_refused({"-p", "a", "-f", "b"}, 1, "not both");
  check_refused({"-f", folder.path("absent")}, 2, "absent");
  check_refused({"-f", folder.path("")}, 2, "directory");
}

TEST_CASE("A prompt longer than the context is refused with 1, the numbers and the flag") {
  const std::string prompt = GENERATE("a b c d e f g h i j k l", "a b c d e f g h");
  const bool fits_just_not = prompt.size() < 16;
  CAPTURE(fits_just_not);
  check_refused({"-p", prompt, "-c", "7"}, 1, "-c");
}

TEST_CASE("A prompt of any bytes is taken") {
  std::string bytes;
  for (int byte = 1; byte < 256; ++byte) bytes += static_cast<char>(byte);
  const TempFolder folder;
  const Outcome outcome = run_program({"run", small_model(), "-q", "-n", "2", "-f",
                                       folder.write("bytes", bytes + std::string(3, '\0'))});
  CHECK(outcome.code == 0);
  CHECK(outcome.out.substr(0, 258) == bytes + std::string(3, '\0'));
}
