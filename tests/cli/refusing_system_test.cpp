// Systems that give less than usual: no io_uring, no direct reads, little lockable memory, a memory
// limit. Each is met by a documented fall-back that the report names, or by a clear refusal.
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <optional>

#include "tests/cli/limited_group.h"
#include "tests/cli/program.h"

using namespace millrace;
using namespace millrace::cli;
using testing::TempFolder;

namespace {

constexpr int no_seccomp = 77;

bool install(sock_filter* filter, unsigned short length) {
  const sock_fprog program = {length, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0)
    return true;
  _exit(no_seccomp);
}

// In the child: a system call fails from now on, if `bits` is not 0 only with these bits in its
// third argument.
bool refuse(long number, unsigned bits, int code) {
  constexpr unsigned third_argument = offsetof(seccomp_data, args) + 2 * sizeof(std::uint64_t);
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, third_argument),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(code)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  if (bits == 0) filter[3] = BPF_JUMP(BPF_JMP | BPF_JA, 0, 0, 0);
  return install(filter, 6);
}

bool skipped(const Outcome& outcome) {
  if (outcome.code != no_seccomp) return false;
  WARN("skipped: seccomp filters are not available here");
  return true;
}

const Words tale = {"-p", "Once upon a time", "-n", "12", "--seed", "3", "--cache", "25%"};

// A folder in memory, if there is one.
struct MemoryFolder {
  std::string path;
  MemoryFolder() {
    struct statfs about = {};
    constexpr long tmpfs = 0x01021994;
    if (statfs("/dev/shm", &about) != 0 || about.f_type != tmpfs) return;
    std::string name = "/dev/shm/millrace-test-XXXXXX";
    if (mkdtemp(name.data()) != nullptr) path = name;
  }
  ~MemoryFolder() {
    std::error_code ignored;
    if (!path.empty()) std::filesystem::remove_all(path, ignored);
  }
};

// In the child: without the right to lock memory beyond this limit.
bool limit_locked_memory(rlim_t bytes) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  for (__user_cap_data_struct& part : data) part.effective = part.permitted = part.inheritable = 0;
  if (syscall(SYS_capset, &header, data) != 0) return false;
  // A program of root gets its rights back when it starts, unless they are out of bounds.
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  const rlimit limit = {bytes, bytes};
  return setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
}

}  // namespace

TEST_CASE("Where io_uring is refused, threads read the same, and the report says why") {
  const auto refuse_uring = [] { return refuse(SYS_io_uring_setup, 0, EPERM); };
  const Json usual = run_json(tale);
  const Outcome outcome = run_program(Words{"run", "--json"} + tale, {.before_exec = refuse_uring});
  if (skipped(outcome)) return;
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  const Json report = only_json(outcome);
  CHECK(text_at(report, "io.reader") == "threads");
  CHECK(contains(text_at(report, "io.fallback_reason"), "EPERM"));
  CHECK(text_at(report, "state_hash") == text_at(usual, "state_hash"));
  const std::size_t warning = outcome.err.find("warning: io_uring");
  CHECK(warning != std::string::npos);
  CHECK(outcome.err.find("warning:", warning + 1) == std::string::npos);
  CHECK(contains(outcome.err.substr(outcome.err.find("decode")), "EPERM"));

  const Outcome forced =
      run_program(Words{"run", "--io", "uring"} + tale, {.before_exec = refuse_uring});
  CHECK(forced.code == 2);
  CHECK(forced.out.empty());
  CHECK(contains(forced.err, "--io threads"));
}

TEST_CASE("Where direct reads are refused, the page cache is read, and --direct on ends with 2") {
  const auto refuse_direct = [] { return refuse(SYS_openat, O_DIRECT, EINVAL); };
  const Outcome outcome =
      run_program(Words{"run", "--json", "-v"} + tale, {.before_exec = refuse_direct});
  if (skipped(outcome)) return;
  CAPTURE(outcome.err);
  CHECK(outcome.code == 0);
  CHECK_FALSE(bool_at(only_json(outcome), "io.direct"));
  CHECK(contains(outcome.err, "refuses O_DIRECT"));

  const Outcome forced =
      run_program(Words{"run", "--direct", "on"} + tale, {.before_exec = refuse_direct});
  CHECK(forced.code == 2);
  CHECK(forced.out.empty());
  CHECK(contains(forced.err, "--direct auto"));
}

TEST_CASE("A model file in memory works, directly read only where its file system can") {
  const MemoryFolder folder;
  if (folder.path.empty()) {
    WARN("skipped: /dev/shm is no tmpfs that can be written");
    return;
  }
  const std::string path = folder.path + "/m.gguf";
  std::filesystem::copy_file(embedded_model(), path);
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECT);
  const bool direct = fd >= 0;  // since Linux 6.6
  if (direct) close(fd);
  const Json report = run_json(Words{"-m", path} + tale);
  CHECK(bool_at(report, "io.direct") == direct);
  CHECK(text_at(report, "state_hash") == text_at(run_json(tale), "state_hash"));
  CHECK(run_program(Words{"run", "--direct", "on", "-m", path} + tale).code == (direct ? 0 : 2));
}

TEST_CASE("With little lockable memory the run is the same, and the report says what to raise") {
  const Setup limited = {.before_exec = [] { return limit_locked_memory(64 * 1024); }};
  const Outcome outcome = run_program(Words{"run", "--json"} + tale, limited);
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 0);
  const Json report = only_json(outcome);
  if (integer_at(report, "memory.locked_bytes") > 0) {
    WARN("skipped: the right to lock memory could not be given up");
    return;
  }
  CHECK(text_at(report, "state_hash") == text_at(run_json(tale), "state_hash"));
  CHECK(contains(text_at(report, "memory.unlocked_reason"), "RLIMIT_MEMLOCK"));
  CHECK(contains(outcome.err, "RLIMIT_MEMLOCK"));
}

TEST_CASE("A memory limit that is too small is refused with 4, the numbers and the flags") {
  const LimitedGroup group(24 << 20);
  if (group.path().empty()) {
    WARN("skipped: no cgroup with a memory limit can be made here");
    return;
  }
  const Outcome outcome =
      run_program(Words{"run"} + tale, {.before_exec = [&] { return group.join(); }});
  CAPTURE(outcome.err, outcome.signal);
  CHECK(outcome.code == 4);
  CHECK(outcome.out.empty());
  CHECK(contains(outcome.err, "MiB"));
  CHECK(contains(outcome.err, "cgroup limit of 24.0 MiB"));
  CHECK(contains(outcome.err, "--cache"));
}

TEST_CASE("A cache or a trunk that is too small is refused with 4 and the smallest that works") {
  struct Small {
    Words flags;
    std::string named;
  };
  const auto small =
      GENERATE(Small{{"--cache", "1"}, "--cache "}, Small{{"--trunk", "1"}, "--trunk "});
  const Outcome outcome = run_program(Words{"run"} + tale + small.flags);
  CAPTURE(outcome.err);
  REQUIRE(outcome.code == 4);
  CHECK(outcome.out.empty());
  const std::size_t at = outcome.err.find(small.named);
  REQUIRE(at != std::string::npos);
  const std::string least = outcome.err.substr(at + small.named.size());
  const std::string bytes = least.substr(0, least.find_first_not_of("0123456789"));
  CAPTURE(bytes);
  REQUIRE_FALSE(bytes.empty());
  const Words with = Words{"run", "-q"} + tale;
  CHECK(run_program(with + Words{small.flags[0], bytes}).code == 0);
  CHECK(run_program(with + Words{small.flags[0], std::to_string(std::stoull(bytes) - 1)}).code ==
        4);
}

TEST_CASE("A memory limit below what a measurement takes is refused, not met") {
  const LimitedGroup group(24 << 20);
  if (group.path().empty()) {
    WARN("skipped: no cgroup with a memory limit can be made here");
    return;
  }
  const TempFolder folder;
  const Words commands[] = {{"estimate", "olmoe-1b-7b"},
                            {"kernels", "--type", "Q4_K", "-t", "1"},
                            {"kernels", "--type", "Q8_0", "-t", "1", "--size", "64K", "--tokens",
                             "512", "--columns", "65536", "--repeats", "1"},
                            {"floor", folder.path(""), "--size", "64M", "--seconds", "1"}};
  for (const Words& words : commands) {
    const Outcome outcome = run_program(words, {.before_exec = [&] { return group.join(); }});
    CAPTURE(words, outcome.err, outcome.signal);
    CHECK(outcome.code == 4);
    CHECK(contains(outcome.err, "measuring the"));
    CHECK(contains(outcome.err, "cgroup limit of 24.0 MiB"));
  }
}

const Words fixture_shape = {"--shape", "olmoe-1b-7b", "--type", "q8_0",         "--layers",
                             "1",       "--experts",   "8",      "--vocabulary", "4096"};

TEST_CASE(
    "Where no threads start, verify and fixture do with one and say so, pack refuses with 4") {
  const TempFolder folder;
  const std::string pool = folder.path("pool");
  REQUIRE(run_program({"pack", "-q", small_model(), pool}).code == 0);
  const auto refuse_threads = [] {
    return refuse(SYS_clone3, 0, EAGAIN) && refuse(SYS_clone, 0, EAGAIN);
  };
  const Words commands[] = {Words{"verify", small_model()},
                            {"verify", pool},
                            Words{"fixture", "-q", folder.path("f.gguf")} + fixture_shape,
                            {"pack", small_model(), folder.path("again")}};
  for (const Words& words : commands) {
    const Outcome outcome = run_program(words, {.before_exec = refuse_threads});
    if (skipped(outcome)) return;
    CAPTURE(words, outcome.err, outcome.signal);
    CHECK(outcome.code == (words[0] == "pack" ? 4 : 0));
    CHECK(contains(outcome.err, "starting thread mr-"));
    CHECK(contains(outcome.err, "ulimit -u"));
  }
}

TEST_CASE("Too little address space ends pack, verify and fixture with 4 and a sentence") {
  const TempFolder folder;
  const std::string pool = folder.path("pool");
  REQUIRE(run_program({"pack", "-q", embedded_model(), pool}).code == 0);
  const Words commands[] = {{"verify", embedded_model()},
                            {"verify", pool},
                            Words{"fixture", "-q", folder.path("f.gguf")} + fixture_shape,
                            {"pack", embedded_model(), folder.path("again")}};
  for (const Words& words : commands) {
    int refused = 0;
    for (rlim_t mib = 24; mib <= 96; mib += 6) {
      std::filesystem::remove(folder.path("f.gguf"));
      std::filesystem::remove(folder.path("again"));
      const Outcome outcome = run_program(words, {.before_exec = [mib] {
                                            const rlimit limit = {mib << 20, mib << 20};
                                            return setrlimit(RLIMIT_AS, &limit) == 0;
                                          }});
      if (outcome.code == 127 || contains(outcome.err, "loading shared libraries")) continue;
      CAPTURE(words, mib, outcome.err, outcome.signal);
      CHECK((outcome.code == 0 || outcome.code == 4));
      if (outcome.code != 4) continue;
      ++refused;
      CHECK(contains(outcome.err, "millrace: error: "));
      CHECK((contains(outcome.err, "memory") || contains(outcome.err, "thread")));
    }
    CAPTURE(words);
    CHECK(refused > 0);
  }
}
