// Runs that something happens to: Ctrl-C, the model deleted or cut short, a reader that goes away,
// a full disk. The run is held at a gate meanwhile, so that it is surely still going on.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

constexpr std::uint64_t row_bytes = 4096 * sizeof(float);  // logits of the embedded model

const Words tale = {"-p", "Once upon a time", "--seed", "3", "--ignore-eos"};

// A run of `tokens` that is held at the gate in decode.
struct HeldRun {
  Gate gate;
  Process process;
  HeldRun(const TempFolder& folder, const Words& flags)
      : gate(folder),
        process(command(Words{"run"} + tale + Words{"--dump-state", gate.path()} + flags),
                {.gate = &gate}) {
    REQUIRE(process.wait_for_gate(3 * row_bytes));
    REQUIRE(process.running());
  }
};

std::string copy_of_model(const TempFolder& folder) {
  const std::string path = folder.path("m.gguf");
  std::filesystem::copy_file(embedded_model(), path);
  return path;
}

// True once the program has seen a first SIGINT: it handles no second one.
bool first_interrupt_was_seen(pid_t child) {
  std::ifstream status("/proc/" + std::to_string(child) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("SigCgt:"))
      return (std::stoull(line.substr(7), nullptr, 16) & (1ull << (SIGINT - 1))) == 0;
  return false;
}

std::function<bool()> output_to(const char* path) {
  return [path] {
    const int fd = open(path, O_WRONLY);
    return fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0;
  };
}

}  // namespace

TEST_CASE("Ctrl-C in decode ends with 130 after the report, and the text so far is there") {
  const TempFolder folder;
  SECTION("as text") {
    HeldRun held(folder, {"-n", "400"});
    held.process.send(SIGINT);
    const Outcome outcome = held.process.finish();
    CAPTURE(outcome.out, outcome.err);
    CHECK(outcome.code == 130);
    CHECK(outcome.out.size() > std::string("Once upon a time\n").size());
    CHECK(contains(outcome.err, "tokens/s"));
    CHECK(contains(outcome.err, "cancelled"));
    CHECK(contains(outcome.err, "interrupted"));
  }
  SECTION("as JSON") {
    HeldRun held(folder, {"-n", "400", "--json"});
    held.process.send(SIGINT);
    const Outcome outcome = held.process.finish();
    CHECK(outcome.code == 130);
    const Json report = only_json(outcome);
    CHECK(text_at(report, "finish_reason") == "cancelled");
    CHECK_FALSE(text_at(report, "text").empty());
    CHECK(integer_at(report, "decode.tokens") >= 2);
    CHECK(integer_at(report, "decode.tokens") < 399);
  }
}

TEST_CASE("A second Ctrl-C ends the program at once") {
  const TempFolder folder;
  HeldRun held(folder, {"-n", "400"});
  held.process.send(SIGINT);
  while (!first_interrupt_was_seen(held.process.id())) sched_yield();
  held.process.send(SIGINT);
  CHECK(held.process.finish().signal == SIGINT);
}

TEST_CASE("Ctrl-C while a prompt is typed ends the program") {
  Process process(command({"run", "-f", "-"}), {.input = "Once", .input_stays_open = true});
  REQUIRE(process.wait_for_input_read());
  process.send(SIGINT);
  CHECK(process.finish().signal == SIGINT);
}

TEST_CASE("A model that is deleted while it runs goes on to the same end") {
  const TempFolder folder;
  const Words flags = {"-n", "40", "--cache", "5%", "--trunk", "80%"};
  const Outcome undisturbed = run_program(Words{"run"} + tale + flags);
  const std::string path = copy_of_model(folder);
  HeldRun held(folder, Words{"-m", path} + flags);
  REQUIRE(std::filesystem::remove(path));
  const Outcome outcome = held.process.finish();
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK(outcome.out == undisturbed.out);
}

TEST_CASE("A model that is cut short while it runs ends with 2, naming file and offset") {
  const Words flags = GENERATE(Words{"--cache", "3%"}, Words{"--cache", "3%", "--io", "threads"},
                               Words{"--cache", "3%", "--direct", "off"},
                               Words{"--cache", "all", "--trunk", "80%"});
  CAPTURE(flags);
  const TempFolder folder;
  const std::string path = copy_of_model(folder);
  HeldRun held(folder, Words{"-m", path, "--json", "-n", "400"} + flags);
  std::filesystem::resize_file(path, 400'000);
  const Outcome outcome = held.process.finish();
  CAPTURE(outcome.err);
  CHECK(outcome.code == 2);
  CHECK(contains(outcome.err, path));
  CHECK(contains(outcome.err, "offset"));
  CHECK(contains(outcome.err, "truncated"));
  const Json report = only_json(outcome);
  CHECK(text_at(report, "finish_reason") == "error");
  CHECK(contains(text_at(report, "error"), path));
  CHECK_FALSE(text_at(report, "text").empty());
}

TEST_CASE("A reader of stdout that goes away ends the run quietly") {
  const TempFolder folder;
  HeldRun held(folder, {"-n", "400", "-q"});
  REQUIRE(held.process.wait_for_output(10));
  held.process.close_output();
  const Outcome outcome = held.process.finish();
  CHECK(outcome.signal == 0);
  CHECK(outcome.code == 0);
  CHECK(outcome.err.empty());
}

TEST_CASE("A full disk behind stdout ends with 2") {
  const TempFolder folder;
  const std::string ids = folder.write("ids", "[1,2,3]");
  const std::string text = folder.write("text", std::string(3000, 'a'));
  for (const Words& words :
       {Words{"run", "-n", "4"} + tale, Words{"run", "-n", "4", "--json"} + tale,
        Words{"tokenize", "--text", "Once"}, Words{"tokenize", "--decode", ids},
        Words{"perplexity", small_model(), text, "-c", "32", "--chunks", "1"}}) {
    CAPTURE(words);
    const Outcome outcome = run_program(words, {.before_exec = output_to("/dev/full")});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, "stdout: No space left on device"));
  }
}

TEST_CASE("A limit of file sizes ends with 2 like a full disk") {
  const TempFolder folder;
  const std::string path = folder.path("state");
  const auto limit = [] {
    const rlimit bytes = {8192, 8192};
    return setrlimit(RLIMIT_FSIZE, &bytes) == 0;
  };
  const Outcome outcome = run_program(
      Words{"run", "-n", "4", "--json", "--dump-state", path} + tale, {.before_exec = limit});
  CAPTURE(outcome.err);
  CHECK(outcome.code == 2);
  CHECK(contains(outcome.err, "--dump-state"));
  CHECK(text_at(only_json(outcome), "finish_reason") == "error");
}

TEST_CASE("A file that cannot be written ends with 2 and is named") {
  const TempFolder folder;
  const std::string ids = folder.write("ids", "[1,2,3]");
  const std::string path = GENERATE(std::string("/dev/full"), std::string("/absent/file"));
  for (const Words& words :
       {Words{"run", "-n", "4"} + tale + Words{"--dump-state"},
        Words{"run", "-n", "4"} + tale + Words{"--trace"}, Words{"logits", "--tokens", ids, "-o"},
        Words{"logits", "--tokens", ids, "-o", "/dev/null", "--greedy", "2", "--greedy-out"}}) {
    CAPTURE(words, path);
    const Outcome outcome = run_program(words + Words{path});
    CAPTURE(outcome.err);
    CHECK(outcome.code == 2);
    CHECK(contains(outcome.err, path));
    if (words[0] == "run") CHECK(contains(outcome.err, words.back()));
  }
}
