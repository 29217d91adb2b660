// Prompts that cannot be continued.
#include <filesystem>

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

TEST_CASE("A text that was typed without -p is asked about, a model without a prompt is not") {
  const Outcome text = run_program({"run", "Once upon a time"});
  CHECK(text.code == 1);
  CHECK(text.out.empty());
  CHECK(contains(text.err, "did you mean -p \"Once upon a time\"?"));
  const Outcome escapes = run_program({"run", "a\x1b[31m"});
  CHECK(escapes.code == 1);
  CHECK(contains(escapes.err, "a\\x1b[31m"));
  CHECK_FALSE(contains(run_program({"run", small_model()}).err, "did you mean"));
  const Outcome named = run_program({"run", "absent.gguf", "-p", "a"});
  CHECK(named.code == 2);
  CHECK_FALSE(contains(named.err, "did you mean"));
}

TEST_CASE("Ids outside the vocabulary, or too many, are refused with 1 and before the reading") {
  const TempFolder folder;
  const auto refused = [&](const std::string& ids, const Words& more, const std::string& named) {
    const Words words = Words{"logits", small_model(),     "--tokens", folder.write("ids", ids),
                              "-o",     folder.path("out")} +
                        more;
    const Outcome outcome = run_program(words);
    CAPTURE(outcome.err);
    CHECK(outcome.code == 1);
    CHECK(contains(outcome.err, named));
    CHECK_FALSE(std::filesystem::exists(folder.path("out")));
  };
  refused("[1, 99999]", {}, "token id 99999 is outside the vocabulary");
  refused("[1, 2, 3, 4, 5]", {"-c", "4"}, "5 tokens do not fit: 4 of 4 positions");
  refused("[1, 2, 3]", {"-c", "4", "--greedy", "3", "--greedy-out", folder.path("g")},
          "(raise -c)");
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
