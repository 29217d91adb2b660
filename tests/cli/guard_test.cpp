// Runs that share a control group with a neighbour who takes its memory away.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cli/limited_group.h"
#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

constexpr std::uint64_t mib = 1 << 20;

// A process in the group that holds ever more memory, a step at a time.
class Neighbour {
 public:
  static constexpr std::uint64_t step_bytes = 16 * mib;

  explicit Neighbour(const LimitedGroup& group) {
    REQUIRE(pipe(orders_) == 0);
    REQUIRE(pipe(answers_) == 0);
    child_ = fork();
    REQUIRE(child_ >= 0);
    if (child_ == 0) be_neighbour(group);
    close(orders_[0]);
    close(answers_[1]);
    char ready = 0;
    REQUIRE(read(answers_[0], &ready, 1) == 1);
  }
  ~Neighbour() { leave(); }
  Neighbour(const Neighbour&) = delete;
  Neighbour& operator=(const Neighbour&) = delete;

  // False if it was killed.
  bool take_step() {
    char done = 0;
    return write(orders_[1], "x", 1) == 1 && read(answers_[0], &done, 1) == 1;
  }
  // Goes away and frees what it holds. True if it was never killed.
  bool leave() {
    if (child_ <= 0) return left_well_;
    close(orders_[1]);
    close(answers_[0]);
    int status = -1;
    waitpid(child_, &status, 0);
    child_ = -1;
    return left_well_ = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  [[noreturn]] void be_neighbour(const LimitedGroup& group) {
    close(orders_[1]);
    close(answers_[0]);
    bool well = group.join() && write(answers_[1], "r", 1) == 1;
    for (char order = 0; well && read(orders_[0], &order, 1) == 1;) {
      void* const more = mmap(nullptr, step_bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
      well = more != MAP_FAILED && write(answers_[1], "d", 1) == 1;
    }
    _exit(well ? 0 : 1);
  }

  int orders_[2] = {-1, -1};
  int answers_[2] = {-1, -1};
  pid_t child_ = -1;
  bool left_well_ = false;
};

// 480 MB of experts, so that the pool has several segments.
std::string streamed_model(const TempFolder& folder) {
  const std::string path = folder.path("m.gguf");
  const Outcome made =
      run_program({"fixture", "--shape", "qwen3-30b-a3b", "--type", "mxfp4", "--layers", "4",
                   "--experts", "48", "--vocabulary", "4096", "-q", path});
  CAPTURE(made.err);
  REQUIRE(made.code == 0);
  return path;
}

constexpr std::uint64_t row_bytes = 4096 * sizeof(float);  // logits of that model

// A run in a group of 768 MiB beside a neighbour that takes 256. The group is a fresh one: what was
// pinned by a process before is charged for a while after its end.
Outcome run_beside_neighbour(const TempFolder& folder, const Words& flags) {
  const LimitedGroup group(768 * mib);
  Gate gate(folder, flags.back().c_str());
  Process run(command(Words{"run", "--dump-state", gate.path()} + flags),
              {.gate = &gate, .before_exec = [&] { return group.join(); }});
  std::uint64_t rows = 3;
  REQUIRE(run.wait_for_gate(rows * row_bytes));
  Neighbour neighbour(group);
  // Each step is smaller than what the guard keeps free, and waits until that is there.
  for (std::uint64_t taken = 0; taken < 256 * mib; taken += Neighbour::step_bytes) {
    while (group.left() < 2 * Neighbour::step_bytes)
      if (!run.wait_for_gate(++rows * row_bytes)) FAIL("the pool did not shrink: " << taken);
    REQUIRE(neighbour.take_step());
  }
  CHECK(neighbour.leave());
  return run.finish();
}

}  // namespace

TEST_CASE("A neighbour that fills the control group shrinks the pool; the run ends as without it",
          "[slow]") {
  if (LimitedGroup(768 * mib).path().empty()) {
    WARN("skipped: no cgroup with a memory limit can be made here");
    return;
  }
  const TempFolder folder;
  const Words flags = {"-m",
                       streamed_model(folder),
                       "-p",
                       "a b c d",
                       "-n",
                       "120",
                       "--ignore-eos",
                       "--seed",
                       "5",
                       "--cache",
                       "400M",
                       "-c",
                       "512",
                       "--json"};
  const Json alone = run_json(flags + Words{"--guard", "off"});
  CHECK(text_at(alone, "guard.mode") == "off");
  for (const char* const prefetch : {"off", "router1"}) {
    const Outcome outcome = run_beside_neighbour(folder, flags + Words{"--prefetch", prefetch});
    CAPTURE(prefetch, outcome.err, outcome.signal);
    CHECK(outcome.code == 0);
    const Json report = only_json(outcome);
    CHECK(text_at(report, "state_hash") == text_at(alone, "state_hash"));
    CHECK(text_at(report, "text") == text_at(alone, "text"));
    CHECK(integer_at(report, "guard.shrinks") >= 2);
    CHECK(integer_at(report, "guard.reasons.memory_left") >= 2);
    CHECK(integer_at(report, "guard.bytes_least") < integer_at(report, "guard.bytes_most"));
    CHECK(contains(outcome.err, "guard: pool shrunk"));
  }
}

TEST_CASE("--guard takes auto and off, and nothing else") {
  for (const char* const mode : {"auto", "off"}) {
    const Json report = run_json({"-p", "Once", "-n", "3", "--guard", mode});
    CHECK(text_at(report, "guard.mode") == mode);
  }
  const Outcome wrong = run_program({"run", "-p", "Once", "--guard", "on"});
  CHECK(wrong.code == 1);
  CHECK(contains(wrong.err, "--guard on"));
}
