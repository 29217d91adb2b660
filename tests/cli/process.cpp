#include "tests/cli/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace millrace::cli {

namespace {

constexpr std::chrono::seconds watchdog{240};

struct Pipe {
  int read_end = -1, write_end = -1;
};

Pipe make_pipe() {
  int ends[2];
  REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
  return {ends[0], ends[1]};
}

// A terminal: what is written to write_end is read from read_end.
Pipe make_terminal() {
  Pipe ends;
  ends.read_end = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(ends.read_end >= 0);
  REQUIRE(grantpt(ends.read_end) == 0);
  REQUIRE(unlockpt(ends.read_end) == 0);
  ends.write_end = open(ptsname(ends.read_end), O_RDWR | O_NOCTTY | O_CLOEXEC);
  REQUIRE(ends.write_end >= 0);
  return ends;
}

void close_fd(int& fd) {
  if (fd >= 0) close(fd);
  fd = -1;
}

}  // namespace

Gate::Gate(const testing::TempFolder& folder, const char* name) : path_(folder.path(name)) {
  REQUIRE(mkfifo(path_.c_str(), 0600) == 0);
  // For both directions, so that opening does not wait and the end of the writer is no event.
  fd_ = open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  REQUIRE(fd_ >= 0);
}

Gate::~Gate() { close_fd(fd_); }

Process::Process(const std::vector<std::string>& command, const Setup& setup)
    : gate_(setup.gate), deadline_(std::chrono::steady_clock::now() + watchdog) {
  Pipe in = make_pipe();
  Pipe out = make_pipe();
  Pipe err = setup.terminal ? make_terminal() : make_pipe();
  child_ = fork();
  REQUIRE(child_ >= 0);
  if (child_ == 0) become(command, setup, {in.read_end, out.write_end, err.write_end});
  close(in.read_end);
  close(out.write_end);
  close(err.write_end);
  input_ = in.write_end;
  out_ = {out.read_end, &outcome_.out};
  err_ = {err.read_end, &outcome_.err};
  const std::string& input = setup.input;
  const bool written =
      input.empty() || write(input_, input.data(), input.size()) == ssize_t(input.size());
  CHECK(written);
  if (!setup.input_stays_open) close_fd(input_);
}

Process::~Process() {
  if (!reaped_) {
    kill(child_, SIGKILL);
    reap(true);
  }
  close_fd(input_);
  close_fd(out_.fd);
  close_fd(err_.fd);
}

// In the child.
void Process::become(const std::vector<std::string>& command, const Setup& setup,
                     const int (&ends)[3]) {
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE}) std::signal(signal, SIG_DFL);
  for (int target = 0; target < 3; ++target)
    if (dup2(ends[target], target) < 0) _exit(125);
  // The profiles of whoever runs the tests would change what the program does.
  setenv("XDG_CACHE_HOME", setup.cache_folder.empty() ? "/dev/null" : setup.cache_folder.c_str(),
         1);
  if (setup.before_exec && !setup.before_exec()) _exit(125);
  std::vector<char*> arguments;
  for (const std::string& argument : command)
    arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(126);
}

void Process::take(Stream& stream) {
  char part[4096];
  const ssize_t got = read(stream.fd, part, sizeof part);
  if (got > 0) stream.text->append(part, static_cast<std::size_t>(got));
  else if (got == 0 || errno != EINTR) close_fd(stream.fd);  // a terminal ends with EIO
}

bool Process::pump(bool through_gate) {
  if (out_.fd < 0 && err_.fd < 0) return false;
  std::array<pollfd, 3> waiting = {{{out_.fd, POLLIN, 0},
                                    {err_.fd, POLLIN, 0},
                                    {through_gate && gate_ ? gate_->fd() : -1, POLLIN, 0}}};
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline_ - std::chrono::steady_clock::now());
  if (left.count() <= 0 || poll(waiting.data(), waiting.size(), int(left.count())) == 0) {
    outcome_.hung = true;
    kill(child_, SIGKILL);
    close_fd(out_.fd);
    close_fd(err_.fd);
    return false;
  }
  if (waiting[0].revents != 0) take(out_);
  if (waiting[1].revents != 0) take(err_);
  if (waiting[2].revents != 0) {
    char part[4096];
    const ssize_t got = read(gate_->fd(), part, sizeof part);
    if (got > 0) gate_bytes_ += static_cast<std::uint64_t>(got);
  }
  return true;
}

bool Process::wait_for_gate(std::uint64_t bytes) {
  while (gate_bytes_ < bytes)
    if (!pump(true)) return false;
  return true;
}

bool Process::wait_for_output(std::uint64_t bytes) {
  while (outcome_.out.size() < bytes)
    if (!pump(false)) return false;
  return true;
}

bool Process::wait_for_error(const std::string& text) {
  while (outcome_.err.find(text) == std::string::npos)
    if (!pump(false)) return false;
  return true;
}

bool Process::wait_for_input_read() {
  int unread = 1;
  while (running() && ioctl(input_, FIONREAD, &unread) == 0 && unread > 0) sched_yield();
  return unread == 0 && running();
}

void Process::reap(bool block) {
  if (reaped_) return;
  int status = 0;
  rusage usage{};
  const pid_t got = wait4(child_, &status, block ? 0 : WNOHANG, &usage);
  if (got != child_) return;
  reaped_ = true;
  outcome_.device_bytes = static_cast<std::uint64_t>(usage.ru_inblock) * 512;
  if (WIFEXITED(status)) outcome_.code = WEXITSTATUS(status);
  else outcome_.signal = WTERMSIG(status);
}

bool Process::running() {
  reap(false);
  return !reaped_;
}

void Process::send(int signal) { kill(child_, signal); }

void Process::close_output() { close_fd(out_.fd); }

Outcome Process::finish() {
  while (pump(true)) continue;
  reap(true);
  return outcome_;
}

}  // namespace millrace::cli
