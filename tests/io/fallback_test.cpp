// What happens where the system refuses: io_uring under seccomp, locked memory under a small limit.
// Each case runs in a child process, which gives up its rights for good.
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>

#include "io/reader.h"
#include "runtime/base/function_ref.h"
#include "runtime/base/log.h"
#include "tests/io/reading_world.h"

using namespace millrace;
using namespace millrace::testing;

namespace {

// Runs `body` in a child; gives back what it returned as text.
std::string in_child(FunctionRef<std::string()> body) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const std::string text = body();
    const bool written =
        write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char part[512];
  for (ssize_t got = 0; (got = read(ends[0], part, sizeof part)) > 0;)
    text.append(part, static_cast<std::size_t>(got));
  close(ends[0]);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  return text;
}

// From now on the system call fails with `code` in this process.
bool refuse_system_call(long number, int code) {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(code)),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {4, filter};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Without the capability that lifts RLIMIT_MEMLOCK, and with this limit.
bool limit_locked_memory(rlim_t bytes) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective &= ~(1u << CAP_IPC_LOCK);
  data[0].permitted &= ~(1u << CAP_IPC_LOCK);
  if (syscall(SYS_capset, &header, data) != 0) return false;
  const rlimit limit = {bytes, bytes};
  return setrlimit(RLIMIT_MEMLOCK, &limit) == 0;
}

// "right" if the reader brings the file's contents into `target`.
std::string read_through(Reader& reader, const ReadingWorld& world, std::byte* target,
                         std::int32_t buffer) {
  TestRead read;
  read.read.buffer = buffer;
  if (!reader.submit(read.at(0, world.padded_bytes(), world.contents.size(), target)))
    return "refused";
  while (reader.in_flight() > 0) reader.poll(true);
  if (read.status != 0) return "status " + std::to_string(read.status);
  return world.holds(target, 0, world.contents.size()) ? "right" : "wrong";
}

// Sanitizers answer mlock themselves, always with success: then limits cannot be shown.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool mlock_is_real = false;
#else
constexpr bool mlock_is_real = true;
#endif

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("Where io_uring is refused, automatic reads with threads and says why; uring fails") {
  struct Case {
    long call;
    int code;
    const char* word;
  };
  const auto [call, code, word] = GENERATE(
      Case{SYS_io_uring_setup, EPERM, "EPERM"}, Case{SYS_io_uring_setup, ENOSYS, "ENOSYS"},
      Case{SYS_io_uring_setup, ENOMEM, "ulimit -l"}, Case{SYS_io_uring_enter, EPERM, "EPERM"},
      Case{SYS_io_uring_enter, ENOSYS, "ENOSYS"});
  CAPTURE(call, code);
  ReadingWorld world(100'000, DirectMode::automatic);
  const std::string told = in_child([&]() -> std::string {
    set_log_level(LogLevel::off);
    if (!refuse_system_call(call, code)) return "no seccomp";
    ReaderOptions options;
    options.files = world.files();
    options.kind = ReaderKind::uring;
    const auto forced = make_reader(options);
    if (forced) return "uring was made";
    options.kind = ReaderKind::automatic;
    auto made = make_reader(options);
    if (!made) return "automatic failed: " + made.error().what;
    PinnedMemory memory;
    const auto target = memory.allocate(1, 200'000);
    return std::string(made->reader->name()) + "|" +
           read_through(*made->reader, world, target->front().data, -1) + "|" +
           made->fallback_reason + "|" + forced.error().what;
  });
  if (told == "no seccomp") {
    WARN("seccomp filters are not available here");
    return;
  }
  CAPTURE(told);
  REQUIRE(told.find("threads|right|io_uring: ") == 0);
  REQUIRE(contains(told, word));
  REQUIRE(contains(told, "--io threads"));
}

TEST_CASE("Where only registering is refused, the ring reads plainly and says why") {
  ReadingWorld world(100'000, DirectMode::automatic);
  if (world.make(Kind::uring, 1) == nullptr) return;
  const std::string told = in_child([&]() -> std::string {
    set_log_level(LogLevel::off);
    if (!refuse_system_call(SYS_io_uring_register, EPERM)) return "no seccomp";
    PinnedMemory memory;
    const auto target = memory.allocate(1, 200'000);
    ReaderOptions options;
    options.kind = ReaderKind::uring;
    options.files = world.files();
    options.buffers = memory.segments();
    auto made = make_reader(options);
    if (!made) return made.error().what;
    return std::to_string(made->reader->registered_buffers()) + "|" +
           read_through(*made->reader, world, target->front().data, 0) + "|" + made->buffers_reason;
  });
  if (told == "no seccomp") return;
  CAPTURE(told);
  REQUIRE(told.find("0|right|0 of 1 buffers registered") == 0);
  REQUIRE(contains(told, "EPERM"));
}

TEST_CASE(
    "With a short RLIMIT_MEMLOCK memory stays unlocked and unregistered, works, and says so") {
  if (!mlock_is_real) return;
  ReadingWorld world(100'000, DirectMode::automatic);
  const bool uring = world.make(Kind::uring, 1) != nullptr;
  const std::string told = in_child([&]() -> std::string {
    set_log_level(LogLevel::off);
    if (!limit_locked_memory(64 * KiB)) return "no rights to give up";
    PinnedMemory memory;
    const auto blocks = memory.allocate(4, 1 * MiB);
    if (!blocks) return blocks.error().what;
    const PinnedMemoryStats stats = memory.stats();
    ReaderOptions options;
    options.kind = uring ? ReaderKind::uring : ReaderKind::threads;
    options.files = world.files();
    options.buffers = memory.segments();
    auto made = make_reader(options);
    if (!made) return made.error().what;
    return std::to_string(stats.locked_bytes) + "|" +
           std::to_string(made->reader->registered_buffers()) + "|" +
           read_through(*made->reader, world, blocks->at(1).data, blocks->at(1).buffer) + "|" +
           stats.unlocked_reason + "|" + made->buffers_reason;
  });
  CAPTURE(told);
  REQUIRE(told.find("0|0|right|RLIMIT_MEMLOCK is 64.0 KiB, 4.00 MiB needed") == 0);
  REQUIRE(contains(told, "ulimit -l 4096"));
  if (uring) {
    REQUIRE(contains(told, "|0 of 1 buffers registered"));
    REQUIRE(told.rfind("64.0 KiB, 4.00 MiB needed") > told.rfind('|'));
  } else {
    REQUIRE(contains(told, "threads reader"));
  }
}

TEST_CASE("What fits RLIMIT_MEMLOCK is locked and registered, the rest is read plainly") {
  if (!mlock_is_real) return;
  ReadingWorld world(100'000, DirectMode::automatic);
  if (world.make(Kind::uring, 1) == nullptr) return;
  const std::string told = in_child([&]() -> std::string {
    set_log_level(LogLevel::off);
    if (!limit_locked_memory(6 * MiB)) return "no rights to give up";
    PinnedMemory memory;
    const auto small = memory.allocate(1, 4 * MiB);
    const auto large = memory.allocate(1, 64 * MiB);
    if (!small || !large) return "no memory";
    ReaderOptions options;
    options.kind = ReaderKind::uring;
    options.files = world.files();
    options.buffers = memory.segments();
    auto made = make_reader(options);
    if (!made) return made.error().what;
    Reader& reader = *made->reader;
    return std::to_string(memory.stats().locked_bytes) + "|" +
           std::to_string(reader.registered_buffers()) + "|" +
           read_through(reader, world, small->front().data, 0) + "|" +
           read_through(reader, world, large->front().data, 1) + "|" + made->buffers_reason;
  });
  CAPTURE(told);
  REQUIRE(told.find("4194304|1|right|right|1 of 2 buffers registered") == 0);
}
