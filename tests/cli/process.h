// A child process as a user starts it: its output, exit code and resource use. The test drives it
// from one thread: nothing is read from it but inside the calls below. fork and exec instead of
// posix_spawn, since some tests have to take rights away in the child before the program begins.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/temp_folder.h"

namespace millrace::cli {

// How it ended.
struct Outcome {
  int code = -1;      // exit code; -1: a signal ended it
  int signal = 0;     // that signal
  bool hung = false;  // the watchdog ended it
  std::string out, err;
  std::uint64_t device_bytes = 0;  // read from devices, as the kernel counts (ru_inblock)
};

// A FIFO that stands where the program writes a file (--dump-state). Until it is opened wide the
// program gets no further than a few writes behind what the test has taken: so a test acts on a run
// that is surely still going on.
class Gate {
 public:
  explicit Gate(const testing::TempFolder& folder, const char* name = "gate");
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  const std::string& path() const noexcept { return path_; }
  int fd() const noexcept { return fd_; }

 private:
  std::string path_;
  int fd_ = -1;
};

struct Setup {
  std::string input = {};         // stdin; short, since it is written at once
  bool input_stays_open = false;  // nobody ends stdin
  bool terminal = false;          // stderr is a terminal
  Gate* gate = nullptr;
  std::string cache_folder = {};  // XDG_CACHE_HOME; empty: one in which nothing can be kept
  // Runs in the child before the program; false: the child ends with code 125.
  std::function<bool()> before_exec = {};
};

class Process {
 public:
  explicit Process(const std::vector<std::string>& command, const Setup& setup = {});
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Waits until so many bytes have come through the gate, or so many of stdout; false if it ended
  // before.
  bool wait_for_gate(std::uint64_t bytes);
  bool wait_for_output(std::uint64_t bytes);
  bool wait_for_error(const std::string& text);  // until stderr holds it
  // Waits until the program has read all of `input`.
  bool wait_for_input_read();
  bool running();
  pid_t id() const noexcept { return child_; }
  void send(int signal);
  void close_output();  // whoever read stdout goes away
  // Opens the gate and waits for the end; a process that does not end within the watchdog's time is
  // killed.
  Outcome finish();

 private:
  struct Stream {
    int fd = -1;
    std::string* text = nullptr;
  };
  [[noreturn]] void become(const std::vector<std::string>& command, const Setup& setup,
                           const int (&ends)[3]);
  // One turn of reading; `through_gate`: also from the gate. False at the end of both outputs.
  bool pump(bool through_gate);
  void take(Stream& stream);
  void reap(bool block);

  pid_t child_ = -1;
  bool reaped_ = false;
  int input_ = -1;
  Stream out_, err_;
  Gate* gate_ = nullptr;
  std::uint64_t gate_bytes_ = 0;
  std::chrono::steady_clock::time_point deadline_;
  Outcome outcome_;
};

}  // namespace millrace::cli
